/** What a program can see of a directory. Two directories with the same view cannot be told apart. */
import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface ViewOptions {
  /** Leaves times out, for trees that were changed in the same way at different times. */
  readonly times?: boolean;
}

/** One line for each entry, sorted by path. Uses none of the code that it checks. */
export function viewOf(top: string, { times = true }: ViewOptions = {}): string[] {
  const lines: string[] = [];
  const firstNames = new Map<bigint, string>();
  const look = (path: Buffer, shown: string) => {
    const stats = lstatSync(path, { bigint: true });
    const first = stats.isDirectory() ? shown : (firstNames.get(stats.ino) ?? shown);
    firstNames.set(stats.ino, first);
    lines.push(
      [
        JSON.stringify(shown),
        stats.mode.toString(8),
        `${stats.uid}:${stats.gid}`,
        ...(times ? [stats.mtimeNs] : []),
        ...(stats.isDirectory() ? [] : [`size ${stats.size}`, `first ${JSON.stringify(first)}`]),
        ...(stats.isCharacterDevice() ? [`device ${stats.rdev}`] : []),
        ...(stats.isSymbolicLink() ? [readlinkSync(path)] : []),
        ...(stats.isFile() ? [createHash('sha256').update(readFileSync(path)).digest('hex')] : []),
      ].join(' '),
    );
    if (!stats.isDirectory()) return;
    for (const name of readdirSync(path, { encoding: 'buffer' }).sort(Buffer.compare)) {
      look(Buffer.concat([path, Buffer.from('/'), name]), `${shown}/${name.toString('latin1')}`);
    }
  };
  look(Buffer.from(top), '');
  return lines;
}
