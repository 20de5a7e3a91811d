/**
 * Unpacks an untrusted archive into a directory that no other process writes to.
 *
 * No step follows a link: every directory on the path of an entry was checked, so that nothing is written outside. What
 * has an effect on the host is left out or refused: devices, setuid and setgid bits, and extended attributes, which
 * overlayfs would interpret.
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
/** setuid and setgid. setgid is harmless on directories. */
const SET_IDS = 0o6000;
const SET_GROUP = 0o2000;

/** Fails at the first invalid entry, and leaves what was unpacked before it. */
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
  readonly #into: string;
  /** Paths that are known to be directories and not links. They are never removed. */
  readonly #known = new Set<string>(['']);
  /** Timestamps of directories. Set at the end, because adding entries changes them. */
  readonly #times: [path: string, mtime: number][] = [];

  constructor(into: string) {
    this.#into = into;
  }

  async add(entry: ArchiveEntry): Promise<void> {
    const names = namesOf(entry.path);
    const path = names.join('/');
    // The top directory exists, and a guest gets /dev from its own kernel.
    if (path === '' || (names[0] === 'dev' && names.length > 1)) return;
    if (names[0]?.startsWith('.torpor')) throw refused('it has a reserved name:', entry.path);
    await this.#directory(names.slice(0, -1), entry.path);
    const place = this.#place(path);
    switch (entry.kind) {
      case 'directory':
        return this.#addDirectory(entry, path, place);
      case 'file':
        return this.#addFile(entry, path, place);
      case 'link':
        return this.#addLink(entry, path, place);
      case 'hardLink':
        return this.#addHardLink(entry, path, place);
      case 'device':
        throw refused('it has a device:', entry.path);
      case 'fifo':
        throw refused('it has a named pipe:', entry.path);
    }
  }

  async finish(): Promise<void> {
    for (const [path, mtime] of this.#times.toReversed()) await utimes(this.#place(path), mtime, mtime);
  }

  #place(path: string): Buffer {
    return Buffer.concat([Buffer.from(`${this.#into}/`), Buffer.from(path, 'latin1')]);
  }

  /** Makes missing directories on the path of an entry. A link among them is refused, wherever it leads. */
  async #directory(names: readonly string[], whose: string): Promise<void> {
    for (let depth = 1; depth <= names.length; depth += 1) {
      const path = names.slice(0, depth).join('/');
      if (this.#known.has(path)) continue;
      const found = await lstat(this.#place(path)).catch(ignoreMissing);
      if (found === undefined) await mkdir(this.#place(path), { mode: 0o755 });
      else if (!found.isDirectory())
        throw refused('a path in it leads through something that is not a directory:', whose);
      this.#known.add(path);
    }
  }

  async #addDirectory(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    await this.#directory(path.split('/'), entry.path);
    await chown(place, entry.uid, entry.gid);
    await chmod(place, entry.mode & (0o1777 | SET_GROUP));
    this.#times.push([path, timeOf(entry)]);
  }

  async #addFile(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    await this.#removeExisting(path, entry.path);
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

  /** The target is not checked: only the guest resolves it. */
  async #addLink(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    if (entry.target === '' || entry.target.length >= MAX_PATH)
      throw refused('it has a link without a valid target:', entry.path);
    await this.#removeExisting(path, entry.path);
    await symlink(Buffer.from(entry.target, 'latin1'), place);
    await lchown(place, entry.uid, entry.gid);
    await lutimes(place, timeOf(entry), timeOf(entry));
  }

  /** The target must be a file of this archive. */
  async #addHardLink(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    const names = namesOf(entry.target);
    const target = this.#place(names.join('/'));
    for (let depth = 1; depth < names.length; depth += 1) {
      if (!this.#known.has(names.slice(0, depth).join('/')))
        throw refused('it has a hard link without a target:', entry.path);
    }
    const found = await lstat(target).catch(ignoreMissing);
    if (found?.isFile() !== true) throw refused('it has a hard link without a target:', entry.path);
    if (names.join('/') === path) return;
    await this.#removeExisting(path, entry.path);
    await link(target, place);
  }

  /** A later entry replaces an earlier one, as in every unpacker; but nothing replaces a directory. */
  async #removeExisting(path: string, whose: string): Promise<void> {
    const found = await lstat(this.#place(path)).catch(ignoreMissing);
    if (found === undefined) return;
    if (found.isDirectory()) throw refused('it has both a directory and another entry named', whose);
    await unlink(this.#place(path));
  }
}

/** The components of a path, which must stay below the root. */
function namesOf(path: string): string[] {
  if (path.startsWith('/')) throw refused('it has an absolute path:', path);
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..')) throw refused('it has a path with "..":', path);
  const isLong =
    path.length > MAX_PATH || names.length > MAX_DEPTH || names.some((name) => name.length > MAX_NAME);
  if (isLong || path.includes('\0')) throw refused('it has an invalid path:', path);
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
