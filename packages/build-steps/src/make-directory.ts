/** A command that makes a directory and those above it. New ones belong to the owner; undefined: to root. */
import { posix } from 'node:path';
import { quoted } from './shell-words.ts';

/** `path` is absolute. The command needs `set -e`. */
export function makeDirectory(path: string, owner: string | undefined): string {
  if (owner === undefined) return `mkdir -p ${quoted(path)}`;
  const names = posix.normalize(path).split('/').filter(Boolean);
  return names
    .map((_, index) => quoted(`/${names.slice(0, index + 1).join('/')}`))
    .map(
      (directory) => `[ -d ${directory} ] || { mkdir ${directory} && chown ${quoted(owner)} ${directory}; }`,
    )
    .join('\n');
}
