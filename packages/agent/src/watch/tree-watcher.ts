/** Watches a directory, optionally with everything below it, and reports typed changes. */
import { type FSWatcher, watch } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { TorporError } from '@torpor/protocol';
import { errnoOf, toFileError } from '../files/file-errors.ts';
import { isInside } from '../files/paths.ts';
import { isUploadInProgress } from '../files/upload-names.ts';
import {
  type ChangeType,
  changesOf,
  changesOfNewEntry,
  type EntryState,
  entryStateOf,
  type Hint,
} from './entry-changes.ts';

export interface Change {
  /** Relative to the watched directory. */
  readonly name: string;
  readonly type: ChangeType;
}

export interface TreeWatcherOptions {
  readonly recursive: boolean;
  /** Whether the agent itself is changing this path. */
  readonly isAgentChange: (path: string) => boolean;
  readonly onChanges: (changes: readonly Change[]) => void;
  /** The watch has ended: the directory is gone, or the system cannot watch so many directories. */
  readonly onFailure: (error: TorporError) => void;
}

/** Events within this time are examined together, so that both ends of a move are found. */
const BATCH_MS = 15;

interface WatchedDirectory {
  readonly watcher: FSWatcher;
  readonly entries: Map<string, EntryState>;
}

interface NamedState {
  readonly name: string;
  readonly now: EntryState;
}

type Hints = ReadonlySet<Hint>;

const NO_HINTS: Hints = new Set();

export class TreeWatcher {
  /** The watched path with all links resolved. */
  readonly #top: string;
  readonly #options: TreeWatcherOptions;
  readonly #directories = new Map<string, WatchedDirectory>();
  #hints = new Map<string, Set<Hint>>();
  #timer: NodeJS.Timeout | undefined;
  /** Examinations run one after the other. */
  #examining: Promise<void> = Promise.resolve();
  #closed = false;

  private constructor(top: string, options: TreeWatcherOptions) {
    this.#top = top;
    this.#options = options;
  }

  /** Resolves when every later change will be reported. Links in the path of `top` must be resolved. */
  static async open(top: string, options: TreeWatcherOptions): Promise<TreeWatcher> {
    const watcher = new TreeWatcher(top, options);
    try {
      await watcher.#add('', undefined);
    } catch (thrown) {
      watcher.close();
      throw toFileError(thrown, top);
    }
    return watcher;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
  }

  /** Resolves when everything that the kernel has reported, and these paths, have been examined. */
  async settle(changed: readonly string[]): Promise<void> {
    // Between these two, the event loop reads the events that the kernel has reported.
    await setImmediate();
    await setImmediate();
    for (const path of changed) {
      if (path === this.#top || !isInside(path, this.#top)) continue;
      const name = relative(this.#top, path);
      this.#addHint(directoryOf(name), basename(name), 'rename');
    }
    await this.#examineHints();
  }

  /**
   * `found` collects the content of a directory that was created during the watch. Undefined for the first snapshot.
   */
  async #add(directory: string, found: Change[] | undefined): Promise<void> {
    const path = join(this.#top, directory);
    const watcher = watch(path, (hint, name) => this.#addHint(directory, name, hint));
    watcher.on('error', () => this.#unwatch(directory));
    const entries = new Map<string, EntryState>();
    this.#directories.set(directory, { watcher, entries });
    for (const name of await readdir(path)) {
      const now = isUploadInProgress(name) ? undefined : await readState(join(path, name));
      if (now === undefined) continue;
      entries.set(name, now);
      const below = join(directory, name);
      found?.push(...this.#describeNew({ name: below, now }, NO_HINTS));
      if (this.#options.recursive && now.kind === 'directory') await this.#addBelow(below, found);
    }
    if (this.#closed) watcher.close();
  }

  /**
   * A directory below may be gone again or unreadable; both are ignored. Only exhausted system limits end the watch.
   */
  async #addBelow(directory: string, found: Change[] | undefined): Promise<void> {
    try {
      await this.#add(directory, found);
    } catch (thrown) {
      this.#unwatch(directory);
      if (errnoOf(thrown) === 'ENOSPC' || errnoOf(thrown) === 'EMFILE') {
        throw new TorporError('capacity', 'The system cannot watch so many directories.', { cause: thrown });
      }
    }
  }

  #addHint(directory: string, name: string | null, hint: Hint): void {
    if (this.#closed || name === null || isUploadInProgress(name)) return;
    const path = join(directory, name);
    const hints = this.#hints.get(path) ?? new Set();
    this.#hints.set(path, hints.add(hint));
    this.#timer ??= setTimeout(() => void this.#examineHints(), BATCH_MS);
  }

  /** Resolves when all hints so far have been examined. */
  #examineHints(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#examining = this.#examining.then(() => this.#examineOnce());
    return this.#examining;
  }

  async #examineOnce(): Promise<void> {
    if (this.#closed || this.#hints.size === 0) return;
    try {
      const hints = this.#hints;
      this.#hints = new Map();
      const changes = await this.#changesFor(hints);
      if (changes.length > 0 && !this.#closed) this.#options.onChanges(changes);
      if (!this.#closed && (await readState(this.#top)) === undefined) {
        throw new TorporError('not_found', `${this.#top} does not exist any more.`);
      }
    } catch (thrown) {
      this.close();
      this.#options.onFailure(toFileError(thrown, this.#top));
    }
  }

  async #changesFor(hints: ReadonlyMap<string, Hints>): Promise<Change[]> {
    const removed: NamedState[] = [];
    const added: NamedState[] = [];
    const changed: Change[] = [];
    for (const [name, kinds] of hints) {
      const entries = this.#directories.get(directoryOf(name))?.entries;
      if (entries === undefined) continue;
      const before = entries.get(basename(name));
      const now = await readState(join(this.#top, name));
      if (now === undefined) {
        entries.delete(basename(name));
        if (before !== undefined) removed.push({ name, now: before });
        continue;
      }
      entries.set(basename(name), now);
      if (before === undefined) added.push({ name, now });
      else {
        const types = changesOf(before, now, kinds, this.#isAgentChange(name));
        changed.push(...types.map((type) => ({ name, type })));
      }
    }
    return [
      ...this.#describeRemoved(removed, added),
      ...(await this.#describeAdded(removed, added, hints)),
      ...changed,
    ];
  }

  #describeRemoved(removed: readonly NamedState[], added: readonly NamedState[]): Change[] {
    for (const { name, now } of removed) if (now.kind === 'directory') this.#unwatch(name);
    return removed.map((entry) => ({ name: entry.name, type: isAmong(added, entry) ? 'rename' : 'remove' }));
  }

  async #describeAdded(
    removed: readonly NamedState[],
    added: readonly NamedState[],
    hints: ReadonlyMap<string, Hints>,
  ): Promise<Change[]> {
    const changes: Change[] = [];
    for (const entry of added) {
      const { name, now } = entry;
      const isMoved = isAmong(removed, entry);
      if (isMoved) changes.push({ name, type: 'create' });
      else changes.push(...this.#describeNew(entry, hints.get(name) ?? NO_HINTS));
      if (!this.#options.recursive || now.kind !== 'directory' || this.#directories.has(name)) continue;
      await this.#addBelow(name, isMoved ? undefined : changes);
    }
    return changes;
  }

  #describeNew({ name, now }: NamedState, hints: Hints): Change[] {
    return changesOfNewEntry(now, hints, this.#isAgentChange(name)).map((type) => ({ name, type }));
  }

  #isAgentChange(name: string): boolean {
    return this.#options.isAgentChange(join(this.#top, name));
  }

  #unwatch(directory: string): void {
    for (const [name, { watcher }] of this.#directories) {
      if (directory !== '' && !isInside(name, directory)) continue;
      watcher.close();
      this.#directories.delete(name);
    }
  }
}

function directoryOf(name: string): string {
  const directory = dirname(name);
  return directory === '.' ? '' : directory;
}

function isAmong(entries: readonly NamedState[], entry: NamedState): boolean {
  return entries.some(({ now }) => now.inode === entry.now.inode && now.born === entry.now.born);
}

async function readState(path: string): Promise<EntryState | undefined> {
  try {
    return entryStateOf(await lstat(path, { bigint: true }));
  } catch {
    return undefined;
  }
}
