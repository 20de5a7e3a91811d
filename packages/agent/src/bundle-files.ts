/** The files of the agent's bundle: the native libraries beside it, and how a new bundle takes the place of the last. */
import { cp, mkdir, readdir, rename } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { XATTR_LIBRARY } from './files/extended-attributes.ts';

const require = createRequire(import.meta.url);

/** Copied beside the bundle, because native modules cannot be bundled. */
const TERMINAL = ['@lydell/node-pty', `@lydell/node-pty-${process.platform}-${process.arch}`];

export async function copyNativeLibraries(work: string): Promise<void> {
  const xattr = xattrDirectory();
  const copies = TERMINAL.map((name) => [name, directoryOf(name, '@lydell/node-pty')] as const);
  for (const [name, from] of xattr === undefined ? copies : [...copies, [XATTR_LIBRARY, xattr] as const])
    await cp(from, join(work, 'node_modules', name), { recursive: true });
}

/** Undefined where the library is not installed: then the agent keeps metadata of files beside them. */
export function xattrDirectory(): string | undefined {
  try {
    return directoryOf(XATTR_LIBRARY, '@napi-rs/xattr');
  } catch {
    return undefined;
  }
}

/** `user` is the package that depends on it. */
function directoryOf(name: string, user: string): string {
  return dirname(require.resolve(`${name}/package.json`, { paths: [require.resolve(user)] }));
}

/** Moves file by file, so that a running agent finds each file at any time. The stamp is moved last. */
export async function publish(work: string, into: string): Promise<void> {
  for (const file of (await filesIn(work)).filter((name) => name !== 'stamp').concat('stamp')) {
    await mkdir(dirname(join(into, file)), { recursive: true });
    await rename(join(work, file), join(into, file));
  }
}

/** Relative paths of all files below a directory, sorted, so that the order does not depend on the system. */
export async function filesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((file) => relative(directory, join(file.parentPath, file.name))).sort();
}
