/**
 * Resolves paths inside an untrusted root. Links are resolved as a guest would: an absolute link starts at the top of
 * that root, never at the host's. No other process writes to the root meanwhile, so that a checked path stays valid.
 */
import { lstat, mkdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const MAX_LINKS = 40;

/** The host path of a path in the guest, whether the file exists or not. */
export async function insideRoot(root: string, path: string): Promise<string> {
  let rest = path.split('/').filter(isName);
  let at: string[] = [];
  for (let links = 0; ; ) {
    const name = rest.shift();
    if (name === undefined) return join(root, ...at);
    if (name === '..') {
      at = at.slice(0, -1);
      continue;
    }
    const link = await readlink(join(root, ...at, name)).catch(() => undefined);
    if (link === undefined) {
      at = [...at, name];
      continue;
    }
    links += 1;
    if (links > MAX_LINKS) throw refused(path, 'leads through too many links');
    if (link.startsWith('/')) at = [];
    rest = [...link.split('/').filter(isName), ...rest];
  }
}

function isName(name: string): boolean {
  return name !== '' && name !== '.';
}

/** Makes missing directories. Existing ones stay; a path that is not a directory is refused. */
export async function directoryInside(root: string, path: string, mode = 0o755): Promise<string> {
  const hostPath = await insideRoot(root, path);
  const found = await lstat(hostPath).catch((thrown: unknown) => ignoreMissing(thrown, path));
  if (found?.isDirectory() === true) return hostPath;
  if (found !== undefined) throw refused(path, 'is not a directory');
  // The resolved path contains no link that could lead out of the root.
  await mkdir(hostPath, { recursive: true, mode });
  return hostPath;
}

/** Undefined when the file is missing; anything but a regular file is refused. */
export async function readInside(root: string, path: string): Promise<string | undefined> {
  const hostPath = await insideRoot(root, path);
  const found = await lstat(hostPath).catch((thrown: unknown) => ignoreMissing(thrown, path));
  if (found === undefined) return undefined;
  if (!found.isFile()) throw refused(path, 'is not a file');
  return readFile(hostPath, 'utf8');
}

/** An existing file keeps its mode. A link into a missing directory is refused. */
export async function writeInside(root: string, path: string, text: string, mode = 0o644): Promise<void> {
  await readInside(root, path);
  await writeFile(await insideRoot(root, path), text, { mode }).catch((thrown: unknown) => {
    throw isMissing(thrown) ? refused(path, 'leads to a directory that does not exist') : thrown;
  });
}

function ignoreMissing(thrown: unknown, path: string): undefined {
  if (errnoOf(thrown) === 'ENOTDIR') throw refused(path, 'leads through a file');
  if (errnoOf(thrown) === 'ENAMETOOLONG') throw refused(path, 'leads to a name that is too long');
  if (!isMissing(thrown)) throw thrown;
  return undefined;
}

function refused(path: string, why: string): TorporError {
  return new TorporError('invalid_request', `The root cannot be used: ${path} ${why}.`);
}
