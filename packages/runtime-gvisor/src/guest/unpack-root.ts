/**
 * Unpacks an archive that strangers made into a directory that nobody else writes to.
 *
 * No step follows a link: every directory on the way to an entry is one that was looked at, so nothing is
 * ever written outside. What has rights or meaning on this machine does not come through: devices, bits that
 * change the user, and extended attributes, which could speak to the file system that stacks the layers.
 */
import { constants } from 'node:fs';
import {
  chmod,
  chown,
  lchown,
  link,
  lstat,
  lutimes,
  mkdir,
  open,
  symlink,
  unlink,
  utimes,
} from 'node:fs/promises';
import { type ByteReader, isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { type ArchiveEntry, archiveEntries } from './archive-entries.ts';

export interface UnpackLimits {
  readonly bytes: number;
  readonly entries: number;
}

const MAX_PATH = 4096;
const MAX_NAME = 255;
const MAX_DEPTH = 256;
/** Sets the user or the group of whoever runs a file; on directories the second means something harmless. */
const SET_IDS = 0o6000;
const SET_GROUP = 0o2000;

/** Fails on the first entry that is no good, and leaves what was unpacked before it. */
export async function unpackRoot(
  archive: ByteReader,
  into: string,
  limits: UnpackLimits,
  signal: AbortSignal,
): Promise<void> {
  const root = new UnpackedRoot(into);
  let [entries, bytes] = [0, 0];
  for await (const entry of archiveEntries(archive)) {
    signal.throwIfAborted();
    entries += 1;
    bytes += entry.kind === 'file' ? entry.size : 0;
    if (entries > limits.entries) throw refused('it has more than', `${limits.entries} entries`);
    if (bytes > limits.bytes) throw refused('it unpacks to more than', `${limits.bytes} bytes`);
    await root.add(entry);
  }
  await root.finish();
}

class UnpackedRoot {
  private readonly into: string;
  /** Directories that are there and are no links. Nothing takes them away again. */
  private readonly known = new Set<string>(['']);
  /** Set when everything is in them, because that changes their times. */
  private readonly times: [path: string, mtime: number][] = [];

  constructor(into: string) {
    this.into = into;
  }

  async add(entry: ArchiveEntry): Promise<void> {
    const names = namesOf(entry.path);
    const path = names.join('/');
    // The top is ours, and what is in /dev a guest has from its own kernel.
    if (path === '' || (names[0] === 'dev' && names.length > 1)) return;
    if (names[0]?.startsWith('.torpor')) throw refused('it has a name that is ours:', entry.path);
    await this.directory(names.slice(0, -1), entry.path);
    const place = this.place(path);
    switch (entry.kind) {
      case 'directory':
        return this.addDirectory(entry, path, place);
      case 'file':
        return this.addFile(entry, path, place);
      case 'link':
        return this.addLink(entry, path, place);
      case 'hardLink':
        return this.addHardLink(entry, path, place);
      case 'device':
        throw refused('it has a device:', entry.path);
      case 'fifo':
        throw refused('it has a named pipe:', entry.path);
    }
  }

  async finish(): Promise<void> {
    for (const [path, mtime] of this.times.toReversed()) await utimes(this.place(path), mtime, mtime);
  }

  private place(path: string): Buffer {
    return Buffer.concat([Buffer.from(`${this.into}/`), Buffer.from(path, 'latin1')]);
  }

  /** Makes sure of every directory on the way; a link among them is refused, wherever it leads. */
  private async directory(names: readonly string[], whose: string): Promise<void> {
    for (let depth = 1; depth <= names.length; depth += 1) {
      const path = names.slice(0, depth).join('/');
      if (this.known.has(path)) continue;
      const found = await lstat(this.place(path)).catch(ignoreMissing);
      if (found === undefined) await mkdir(this.place(path), { mode: 0o755 });
      else if (!found.isDirectory()) throw refused('a name in it leads through something else:', whose);
      this.known.add(path);
    }
  }

  private async addDirectory(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    await this.directory(path.split('/'), entry.path);
    await chown(place, entry.uid, entry.gid);
    await chmod(place, entry.mode & (0o1777 | SET_GROUP));
    this.times.push([path, timeOf(entry)]);
  }

  private async addFile(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    await this.makeWay(path, entry.path);
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    const file = await open(place, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      for await (const piece of entry.content) await file.writeFile(piece);
      await file.chown(entry.uid, entry.gid);
      await file.chmod(entry.mode & 0o7777 & ~SET_IDS);
      await file.utimes(timeOf(entry), timeOf(entry));
    } finally {
      await file.close();
    }
  }

  /** Kept as it is: it means something to the guest only. */
  private async addLink(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    if (entry.target === '' || entry.target.length >= MAX_PATH)
      throw refused('a link in it leads nowhere:', entry.path);
    await this.makeWay(path, entry.path);
    await symlink(Buffer.from(entry.target, 'latin1'), place);
    await lchown(place, entry.uid, entry.gid);
    await lutimes(place, timeOf(entry), timeOf(entry));
  }

  /** A second name, of a file that came with this archive. */
  private async addHardLink(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    const names = namesOf(entry.target);
    const target = this.place(names.join('/'));
    for (let depth = 1; depth < names.length; depth += 1) {
      if (!this.known.has(names.slice(0, depth).join('/')))
        throw refused('a second name in it has no first:', entry.path);
    }
    const found = await lstat(target).catch(ignoreMissing);
    if (found?.isFile() !== true) throw refused('a second name in it has no first:', entry.path);
    if (names.join('/') === path) return;
    await this.makeWay(path, entry.path);
    await link(target, place);
  }

  /** What comes later counts, as for every unpacker; but a directory is not given up for something else. */
  private async makeWay(path: string, whose: string): Promise<void> {
    const found = await lstat(this.place(path)).catch(ignoreMissing);
    if (found === undefined) return;
    if (found.isDirectory()) throw refused('a directory in it is something else too:', whose);
    await unlink(this.place(path));
  }
}

/** The names from the top, which must stay below it. */
function namesOf(path: string): string[] {
  if (path.startsWith('/')) throw refused('it has an absolute name:', path);
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..')) throw refused('it has a name that leads upwards:', path);
  const isLong =
    path.length > MAX_PATH || names.length > MAX_DEPTH || names.some((name) => name.length > MAX_NAME);
  if (isLong || path.includes('\0')) throw refused('it has a name that cannot be:', path);
  return names;
}

function timeOf({ mtime }: ArchiveEntry): number {
  return Number.isFinite(mtime) ? mtime : 0;
}

function ignoreMissing(thrown: unknown): undefined {
  if (!isMissing(thrown)) throw thrown;
  return undefined;
}

function refused(why: string, what: string): TorporError {
  const shown = Buffer.from(what.slice(0, 200), 'latin1').toString('utf8');
  return new TorporError('invalid_request', `The archive of the root cannot be used: ${why} ${shown}.`);
}
