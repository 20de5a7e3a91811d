/**
 * Unpacks an untrusted archive into a directory that no other process writes to: a whole root, or a layer of a container
 * image on top of the layers below it.
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
  readdir,
  rmdir,
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
  await unpack(archive, new UnpackedRoot(into), new UnpackBudget(limits), signal);
}

/**
 * Applies a layer of an image to the layers below it, which are in `into` already. Files of these may be hard links of files
 * that must not change: nothing is written in place. Fails at the first invalid entry.
 */
export async function unpackLayer(
  archive: ByteReader,
  into: string,
  budget: UnpackBudget,
  signal: AbortSignal,
): Promise<void> {
  await unpack(archive, new UnpackedLayer(into), budget, signal);
}

/** What may still be unpacked. All layers of an image share one. */
export class UnpackBudget {
  readonly #limits: UnpackLimits;
  #entries = 0;
  #bytes = 0;

  constructor(limits: UnpackLimits) {
    this.#limits = limits;
  }

  take({ kind, size }: ArchiveEntry): void {
    this.#entries += 1;
    this.#bytes += kind === 'file' ? size : 0;
    const { entries, bytes } = this.#limits;
    if (this.#entries > entries) throw refused('it has more than', `${entries} entries`);
    if (this.#bytes > bytes) throw refused('it unpacks to more than', `${bytes} bytes`);
  }
}

async function unpack(
  archive: ByteReader,
  root: UnpackedRoot,
  budget: UnpackBudget,
  signal: AbortSignal,
): Promise<void> {
  for await (const entry of archiveEntries(archive)) {
    signal.throwIfAborted();
    budget.take(entry);
    await root.add(entry);
  }
  await root.finish();
}

class UnpackedRoot {
  readonly #into: string;
  /** Paths that are known to be directories and not links. */
  protected readonly known = new Set<string>(['']);
  /** Timestamps of directories. Set at the end, because adding entries changes them. */
  protected readonly times = new Map<string, number>();

  constructor(into: string) {
    this.#into = into;
  }

  async add(entry: ArchiveEntry): Promise<void> {
    const names = namesOf(entry.path);
    const path = names.join('/');
    // The top directory exists, and a guest gets /dev from its own kernel.
    if (path === '' || (names[0] === 'dev' && names.length > 1)) return;
    if (names[0]?.startsWith('.torpor')) throw refused('it has a reserved name:', entry.path);
    await this.addNamed(entry, names);
  }

  async finish(): Promise<void> {
    for (const [path, mtime] of [...this.times].toReversed()) await utimes(this.place(path), mtime, mtime);
  }

  protected async addNamed(entry: ArchiveEntry, names: readonly string[]): Promise<void> {
    const path = names.join('/');
    await this.#directory(names.slice(0, -1), entry.path);
    const place = this.place(path);
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

  protected place(path: string): Buffer {
    return Buffer.concat([Buffer.from(`${this.#into}/`), Buffer.from(path, 'latin1')]);
  }

  /** A later entry replaces an earlier one, as in every unpacker; but nothing replaces a directory. */
  protected async removeExisting(path: string, whose: string): Promise<void> {
    const found = await lstat(this.place(path)).catch(ignoreMissing);
    if (found === undefined) return;
    if (found.isDirectory()) throw refused('it has both a directory and another entry named', whose);
    await unlink(this.place(path));
  }

  /** Makes room for a directory. */
  protected async prepareDirectory(_path: string): Promise<void> {}

  /** Makes missing directories on the path of an entry. A link among them is refused, wherever it leads. */
  async #directory(names: readonly string[], whose: string): Promise<void> {
    for (let depth = 1; depth <= names.length; depth += 1) {
      const path = names.slice(0, depth).join('/');
      if (this.known.has(path)) continue;
      const found = await lstat(this.place(path)).catch(ignoreMissing);
      if (found === undefined) await mkdir(this.place(path), { mode: 0o755 });
      else if (!found.isDirectory())
        throw refused('a path in it leads through something that is not a directory:', whose);
      this.known.add(path);
    }
  }

  async #addDirectory(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    await this.prepareDirectory(path);
    await this.#directory(path.split('/'), entry.path);
    await chown(place, entry.uid, entry.gid);
    await chmod(place, entry.mode & (0o1777 | SET_GROUP));
    this.times.set(path, timeOf(entry));
  }

  async #addFile(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    await this.removeExisting(path, entry.path);
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
    await this.removeExisting(path, entry.path);
    await symlink(Buffer.from(entry.target, 'latin1'), place);
    await lchown(place, entry.uid, entry.gid);
    await lutimes(place, timeOf(entry), timeOf(entry));
  }

  /** The target must be a file of this root, and no link may be on its path. */
  async #addHardLink(entry: ArchiveEntry, path: string, place: Buffer): Promise<void> {
    const names = namesOf(entry.target);
    const target = this.place(names.join('/'));
    for (let depth = 1; depth < names.length; depth += 1) {
      const parent = names.slice(0, depth).join('/');
      const found = this.known.has(parent) ? undefined : await lstat(this.place(parent)).catch(ignoreMissing);
      if (!this.known.has(parent) && found?.isDirectory() !== true)
        throw refused('it has a hard link without a target:', entry.path);
    }
    const found = await lstat(target).catch(ignoreMissing);
    if (found?.isFile() !== true) throw refused('it has a hard link without a target:', entry.path);
    if (names.join('/') === path) return;
    await this.removeExisting(path, entry.path);
    await link(target, place);
  }
}

const WHITEOUT = '.wh.';
/** Names of AUFS's own files, which some images still have. */
const RESERVED_WHITEOUT = '.wh..wh.';
const OPAQUE = '.wh..wh..opq';

/**
 * A layer on top of others. An entry replaces what the layers below have under its name, also a directory. A whiteout removes
 * it. Whiteouts say nothing about the entries of their own layer, wherever they stand in the archive.
 */
class UnpackedLayer extends UnpackedRoot {
  /** The entries of this layer, and the directories above them. */
  readonly #own = new Set<string>();

  protected override async addNamed(entry: ArchiveEntry, names: readonly string[]): Promise<void> {
    const name = names.at(-1) ?? '';
    const parents = names.slice(0, -1);
    if (name === OPAQUE) return this.#removeLower(parents);
    if (names.some((one) => one.startsWith(RESERVED_WHITEOUT))) return;
    if (parents.some((one) => one.startsWith(WHITEOUT)))
      throw refused('it has an invalid whiteout:', entry.path);
    if (!name.startsWith(WHITEOUT)) {
      await super.addNamed(entry, names);
      for (let depth = 1; depth <= names.length; depth += 1) this.#own.add(names.slice(0, depth).join('/'));
      return;
    }
    const hidden = name.slice(WHITEOUT.length);
    if (hidden === '' || hidden === '.' || hidden === '..')
      throw refused('it has an invalid whiteout:', entry.path);
    if (await this.#isDirectory(parents)) await this.#removeLowerAt([...parents, hidden].join('/'));
  }

  protected override async removeExisting(path: string): Promise<void> {
    await this.#removeTree(path);
  }

  protected override async prepareDirectory(path: string): Promise<void> {
    const found = await lstat(this.place(path)).catch(ignoreMissing);
    if (found !== undefined && !found.isDirectory()) await unlink(this.place(path));
  }

  /** Whether the path leads through real directories only. */
  async #isDirectory(names: readonly string[]): Promise<boolean> {
    for (let depth = 1; depth <= names.length; depth += 1) {
      const path = names.slice(0, depth).join('/');
      if (this.known.has(path)) continue;
      const found = await lstat(this.place(path)).catch(ignoreMissing);
      if (found?.isDirectory() !== true) return false;
    }
    return true;
  }

  /** Removes what the layers below have in a directory. */
  async #removeLower(names: readonly string[]): Promise<void> {
    if (!(await this.#isDirectory(names))) return;
    const path = names.join('/');
    for (const name of await readdir(this.place(path), { encoding: 'buffer' }))
      await this.#removeLowerAt(path === '' ? name.toString('latin1') : `${path}/${name.toString('latin1')}`);
  }

  /** Removes a file of the layers below. Of a directory that this layer has too, only what the layers below have in it. */
  async #removeLowerAt(path: string): Promise<void> {
    if (!this.#own.has(path)) return this.#removeTree(path);
    const found = await lstat(this.place(path)).catch(ignoreMissing);
    if (found?.isDirectory() === true) await this.#removeLower(path.split('/'));
  }

  /** Follows no link. */
  async #removeTree(path: string): Promise<void> {
    const place = this.place(path);
    const found = await lstat(place).catch(ignoreMissing);
    if (found === undefined) return;
    if (!found.isDirectory()) return unlink(place);
    for (const name of await readdir(place, { encoding: 'buffer' }))
      await this.#removeTree(`${path}/${name.toString('latin1')}`);
    await rmdir(place);
    this.known.delete(path);
    this.times.delete(path);
    this.#own.delete(path);
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
