/**
 * Paths inside a root that strangers filled. A link in there means what it means to a guest: an absolute one
 * leads to the top of that root, never to the host's. Nobody else writes while we do, so what was looked at
 * stays as it was.
 */
import { lstat, mkdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const MAX_LINKS = 40;

/** The place on this machine that a path of a guest leads to, whether it is there or not. */
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

/** Makes the directories that are missing. What is there stays; what is there and none is refused. */
export async function directoryInside(root: string, path: string, mode = 0o755): Promise<string> {
  const place = await insideRoot(root, path);
  const found = await lstat(place).catch((thrown: unknown) => ignoreMissing(thrown, path));
  if (found?.isDirectory() === true) return place;
  if (found !== undefined) throw refused(path, 'is not a directory');
  // There is no link left in it that could lead away.
  await mkdir(place, { recursive: true, mode });
  return place;
}

/** Undefined when there is none; anything but a regular file is refused. */
export async function readInside(root: string, path: string): Promise<string | undefined> {
  const place = await insideRoot(root, path);
  const found = await lstat(place).catch((thrown: unknown) => ignoreMissing(thrown, path));
  if (found === undefined) return undefined;
  if (!found.isFile()) throw refused(path, 'is not a file');
  return readFile(place, 'utf8');
}

/** A file that is there keeps its mode. A link that leads to a directory that is not there is refused. */
export async function writeInside(root: string, path: string, text: string, mode = 0o644): Promise<void> {
  await readInside(root, path);
  await writeFile(await insideRoot(root, path), text, { mode }).catch((thrown: unknown) => {
    throw isMissing(thrown) ? refused(path, 'leads to a directory that is not there') : thrown;
  });
}

function ignoreMissing(thrown: unknown, path: string): undefined {
  if (errnoOf(thrown) === 'ENOTDIR') throw refused(path, 'leads through a file');
  if (errnoOf(thrown) === 'ENAMETOOLONG') throw refused(path, 'leads to a name that is too long');
  if (!isMissing(thrown)) throw thrown;
  return undefined;
}

function refused(path: string, why: string): TorporError {
  return new TorporError('invalid_request', `The root is no good: ${path} ${why}.`);
}
