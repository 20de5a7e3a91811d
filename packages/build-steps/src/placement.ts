/**
 * Copied files go into the sandbox as one archive, which the programs of the sandbox itself unpack and put in place:
 * `tar`, `cp`, `mkdir`, and `chown` or `chmod` on request.
 */
import { randomBytes } from 'node:crypto';
import { posix } from 'node:path';
import { makeDirectory } from './make-directory.ts';
import { quoted } from './shell-words.ts';
import type { Source } from './source.ts';
import { type TarItem, tarStream } from './tar-stream.ts';

export interface CopyOrder {
  /** Absolute. With `/` at its end it is a directory. */
  readonly target: string;
  /** Whether archives are unpacked. */
  readonly isAdd: boolean;
  readonly chown: string | undefined;
  readonly chmod: string | undefined;
}

/** The command that puts files in place, after its archive was written. */
export interface Placement {
  /** Where the archive is expected. */
  readonly archive: string;
  readonly command: string;
  content(): AsyncIterable<Uint8Array>;
}

export function placementOfFiles(sources: readonly Source[], order: CopyOrder): Placement {
  const { archive, command } = commandFor(
    sources.map(({ isDirectory, items }) => (isDirectory ? null : (items[0]?.path ?? ''))),
    order,
  );
  return { archive, command, content: () => tarStream(itemsOf(sources)) };
}

/** `names`: the name of each file; null for a directory. The archive has the sources under their numbers. */
export function commandFor(names: readonly (string | null)[], order: CopyOrder) {
  const place = `/tmp/.torpor-copy-${randomBytes(6).toString('hex')}`;
  const archive = `${place}/archive.tar`;
  const { target, isAdd, chown, chmod } = order;
  const isInto = target.endsWith('/') || names.length > 1;
  const lines = [`cd ${place}`, 'mkdir files', 'tar -x -p -f archive.tar -C files'];
  if (chown !== undefined) lines.push(`chown -R -h ${quoted(chown)} files/*`);
  if (chmod !== undefined) lines.push(`chmod -R ${chmod} files/*`);
  const to = quoted(target);
  for (const [index, name] of names.entries()) {
    const from = `files/${index}`;
    if (name === null) {
      lines.push(
        `if [ -d ${to} ]; then`,
        // A directory that exists keeps its owner and mode. The patterns stand for all names but . and ..
        `for one in ${from}/* ${from}/.[!.]* ${from}/..?*; do`,
        `if [ -e "$one" ] || [ -L "$one" ]; then cp -a "$one" ${inside(target)}; fi`,
        'done',
        'else',
        makeDirectory(target, chown),
        `cp -a ${from}/. ${to}`,
        'fi',
      );
      continue;
    }
    const file = quoted(`${from}/${name}`);
    if (isAdd && /\.(tar|tgz|tbz2|txz|tar\.(gz|bz2|xz|zst))$/.test(name)) {
      lines.push(makeDirectory(target, chown), `tar -x -f ${file} -C ${to}`);
      continue;
    }
    const parent = isInto ? target : posix.dirname(target);
    lines.push(makeDirectory(parent, chown), `cp -a ${file} ${to}`);
  }
  lines.push('cd /', `rm -rf ${place}`);
  return { place, archive, command: `set -e\n${lines.join('\n')}` };
}

/** A link to a directory is followed only with the `/`. */
function inside(directory: string): string {
  return quoted(directory.endsWith('/') ? directory : `${directory}/`);
}

function* itemsOf(sources: readonly Source[]): Generator<TarItem> {
  for (const [index, { items }] of sources.entries()) {
    yield { path: String(index), type: 'directory', mode: 0o755, mtime: 0, size: 0 };
    for (const item of items) yield { ...item, path: posix.join(String(index), item.path) };
  }
}
