/**
 * Bundles the agent into one file, with the native terminal library beside it, and the program `sudo` into another.
 * Nothing else of node_modules goes into a sandbox.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { join } from 'node:path';
import { build, type Plugin } from 'esbuild';
import { copyNativeLibraries, filesIn, publish, xattrDirectory } from './bundle-files.ts';

const PACKAGE = join(import.meta.dirname, '..');

export interface BundleOptions {
  /**
   * The output directory; the package's `dist` by default. Running agents still load the terminal library from it,
   * so it is updated in place and never removed.
   */
  readonly into?: string;
  /**
   * The data directory of the server. An installed package has the bundle in it and copies it there, because its own
   * directory may be read-only. A clone does not use it.
   */
  readonly dataDir?: string;
}

/** Builds only when the sources have changed. Returns the directory; the program in it is `agent.mjs`. */
export async function bundleAgent({ into = join(PACKAGE, 'dist') }: BundleOptions = {}): Promise<string> {
  const stamp = await sourceStamp();
  const stampFile = join(into, 'stamp');
  if ((await readFile(stampFile, 'utf8').catch(() => '')) === stamp) return into;
  const work = `${into}-${randomUUID()}`;
  try {
    await mkdir(work, { recursive: true });
    await bundle(join(work, 'agent.mjs'));
    await bundleSudo(join(work, 'sudo.cjs'));
    await copyNativeLibraries(work);
    await writeFile(join(work, 'stamp'), stamp);
    await publish(work, into);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return into;
}

async function bundle(outfile: string): Promise<void> {
  await build({
    entryPoints: [join(PACKAGE, 'src/main.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    external: ['@lydell/node-pty'],
    // Some bundled dependencies call `require`.
    banner: {
      js: "import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);",
    },
    plugins: [treeShakeProtocol, requireBuiltins],
    logLevel: 'silent',
  });
}

/** `sudo` starts anew for each call, so it is a small minified CommonJS script, which Node loads fastest. */
async function bundleSudo(outfile: string): Promise<void> {
  await build({
    entryPoints: [join(PACKAGE, 'src/sudo/program.ts')],
    outfile,
    bundle: true,
    minify: true,
    platform: 'node',
    format: 'cjs',
    target: 'node24',
    logLevel: 'silent',
  });
}

/**
 * Marks @torpor/protocol as free of side effects, so that esbuild drops its unused schemas. They would be three
 * quarters of the bundle.
 */
const treeShakeProtocol: Plugin = {
  name: 'tree-shake-protocol',
  setup(bundler) {
    bundler.onResolve({ filter: /^@torpor\/protocol$|^\.\.?\// }, async ({ path, pluginData, ...where }) => {
      const isProtocol = path === '@torpor/protocol' || where.importer.includes('/packages/protocol/');
      if (pluginData === treeShakeProtocol || !isProtocol) return undefined;
      const found = await bundler.resolve(path, { ...where, pluginData: treeShakeProtocol });
      return { path: found.path, errors: found.errors, sideEffects: false };
    });
  },
};

/**
 * Loads Node's built-in modules with `require`. An `import` of a built-in module reads all its exports, and some of
 * them load whole libraries when they are read (a WebSocket client behind `node:http`). A `require` reads none: the
 * agent starts a fifth faster and uses a megabyte less memory.
 */
const requireBuiltins: Plugin = {
  name: 'require-builtins',
  setup(bundler) {
    bundler.onResolve({ filter: /^[a-z_0-9:/]+$/, namespace: 'file' }, ({ path }) =>
      isBuiltin(path) ? { path, namespace: 'builtin', sideEffects: false } : undefined,
    );
    bundler.onResolve({ filter: /./, namespace: 'builtin' }, ({ path }) => ({ path, external: true }));
    bundler.onLoad({ filter: /./, namespace: 'builtin' }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)})`,
    }));
  },
};

/** A hash of everything that goes into the bundle. package.json stands for the versions of the dependencies. */
async function sourceStamp(): Promise<string> {
  const hash = createHash('sha256').update(`${process.platform}-${process.arch}`);
  hash.update(`xattr ${xattrDirectory() !== undefined}`);
  for (const name of ['agent', 'envd', 'protocol']) {
    const directory = join(PACKAGE, '..', name);
    const sources = (await filesIn(join(directory, 'src'))).filter((file) => !/\.(test|d)\.ts$/.test(file));
    for (const file of ['package.json', ...sources.map((source) => join('src', source))]) {
      hash.update(`${name}/${file}\0`).update(await readFile(join(directory, file)));
    }
  }
  return hash.digest('hex');
}
