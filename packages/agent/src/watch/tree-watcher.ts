/** Watches a directory, and on request all below it, and tells what happens there as typed changes. */
import { type FSWatcher, watch } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { TorporError } from '@torpor/protocol';
import { errnoOf, fileFailure } from '../agent-failures.ts';
import { isInside } from '../files/paths.ts';
import { isUploadInProgress } from '../files/upload-names.ts';
import { arrival, type ChangeType, changesOf, type Hint, type Seen, seen } from './entry-changes.ts';

export interface Change {
  /** Relative to the watched directory. */
  readonly name: string;
  readonly type: ChangeType;
}

export interface TreeWatcherOptions {
  readonly recursive: boolean;
  /** Whether the agent itself is changing this path. */
  readonly isOwn: (path: string) => boolean;
  readonly onChanges: (changes: readonly Change[]) => void;
  /** Watching has ended by itself: the directory is gone, or the system cannot watch so much. */
  readonly onFailure: (error: TorporError) => void;
}

/** What happens within so short a time is looked at together, so that moves find both their ends. */
const GATHER_MS = 15;

interface WatchedDirectory {
  readonly watcher: FSWatcher;
  readonly entries: Map<string, Seen>;
}

interface Arrived {
  readonly name: string;
  readonly now: Seen;
}

type Hints = ReadonlySet<Hint>;

const NO_HINTS: Hints = new Set();

export class TreeWatcher {
  /** With every link in it resolved. */
  readonly #top: string;
  readonly #options: TreeWatcherOptions;
  readonly #directories = new Map<string, WatchedDirectory>();
  #hints = new Map<string, Set<Hint>>();
  #timer: NodeJS.Timeout | undefined;
  /** Rounds of looking follow one another. */
  #rounds: Promise<void> = Promise.resolve();
  #closed = false;

  private constructor(top: string, options: TreeWatcherOptions) {
    this.#top = top;
    this.#options = options;
  }

  /** Resolves when nothing can be missed any more. Links in the path of `top` must be resolved. */
  static async open(top: string, options: TreeWatcherOptions): Promise<TreeWatcher> {
    const watcher = new TreeWatcher(top, options);
    try {
      await watcher.#add('', undefined);
    } catch (thrown) {
      watcher.close();
      throw fileFailure(thrown, top);
    }
    return watcher;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
  }

  /** Resolves when everything that the kernel has reported, and these paths, have been looked at. */
  async settle(changed: readonly string[]): Promise<void> {
    // The loop reads what the kernel has reported between the first of these and the second.
    await setImmediate();
    await setImmediate();
    for (const path of changed) {
      if (path === this.#top || !isInside(path, this.#top)) continue;
      const name = relative(this.#top, path);
      this.#note(directoryOf(name), basename(name), 'rename');
    }
    await this.#look();
  }

  /** `found` collects what is in a directory that came while we watched; the first snapshot is no news. */
  async #add(directory: string, found: Change[] | undefined): Promise<void> {
    const path = join(this.#top, directory);
    const watcher = watch(path, (hint, name) => this.#note(directory, name, hint));
    watcher.on('error', () => this.#forget(directory));
    const entries = new Map<string, Seen>();
    this.#directories.set(directory, { watcher, entries });
    for (const name of await readdir(path)) {
      const now = isUploadInProgress(name) ? undefined : await lookAt(join(path, name));
      if (now === undefined) continue;
      entries.set(name, now);
      const below = join(directory, name);
      found?.push(...this.#arrivalOf({ name: below, now }, NO_HINTS));
      if (this.#options.recursive && now.kind === 'directory') await this.#addBelow(below, found);
    }
    if (this.#closed) watcher.close();
  }

  /** A directory below may be gone again, or closed to us. Only exhaustion is a reason to give up. */
  async #addBelow(directory: string, found: Change[] | undefined): Promise<void> {
    try {
      await this.#add(directory, found);
    } catch (thrown) {
      this.#forget(directory);
      if (errnoOf(thrown) === 'ENOSPC' || errnoOf(thrown) === 'EMFILE') {
        throw new TorporError('capacity', 'The system cannot watch so many directories.', { cause: thrown });
      }
    }
  }

  #note(directory: string, name: string | null, hint: Hint): void {
    if (this.#closed || name === null || isUploadInProgress(name)) return;
    const path = join(directory, name);
    const hints = this.#hints.get(path) ?? new Set();
    this.#hints.set(path, hints.add(hint));
    this.#timer ??= setTimeout(() => void this.#look(), GATHER_MS);
  }

  /** Resolves when all that was noted so far has been looked at. */
  #look(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#rounds = this.#rounds.then(() => this.#round());
    return this.#rounds;
  }

  async #round(): Promise<void> {
    if (this.#closed || this.#hints.size === 0) return;
    try {
      const hints = this.#hints;
      this.#hints = new Map();
      const changes = await this.#examine(hints);
      if (changes.length > 0 && !this.#closed) this.#options.onChanges(changes);
      if (!this.#closed && (await lookAt(this.#top)) === undefined) {
        throw new TorporError('not_found', `${this.#top} does not exist any more.`);
      }
    } catch (thrown) {
      this.close();
      this.#options.onFailure(fileFailure(thrown, this.#top));
    }
  }

  async #examine(hints: ReadonlyMap<string, Hints>): Promise<Change[]> {
    const gone: Arrived[] = [];
    const arrived: Arrived[] = [];
    const changed: Change[] = [];
    for (const [name, kinds] of hints) {
      const entries = this.#directories.get(directoryOf(name))?.entries;
      if (entries === undefined) continue;
      const before = entries.get(basename(name));
      const now = await lookAt(join(this.#top, name));
      if (now === undefined) {
        entries.delete(basename(name));
        if (before !== undefined) gone.push({ name, now: before });
        continue;
      }
      entries.set(basename(name), now);
      if (before === undefined) arrived.push({ name, now });
      else {
        const types = changesOf(before, now, kinds, this.#isOwn(name));
        changed.push(...types.map((type) => ({ name, type })));
      }
    }
    return [...this.#tellGone(gone, arrived), ...(await this.#tellArrived(gone, arrived, hints)), ...changed];
  }

  #tellGone(gone: readonly Arrived[], arrived: readonly Arrived[]): Change[] {
    for (const { name, now } of gone) if (now.kind === 'directory') this.#forget(name);
    return gone.map((left) => ({ name: left.name, type: isAmong(arrived, left) ? 'rename' : 'remove' }));
  }

  async #tellArrived(
    gone: readonly Arrived[],
    arrived: readonly Arrived[],
    hints: ReadonlyMap<string, Hints>,
  ): Promise<Change[]> {
    const changes: Change[] = [];
    for (const came of arrived) {
      const { name, now } = came;
      const isMoved = isAmong(gone, came);
      if (isMoved) changes.push({ name, type: 'create' });
      else changes.push(...this.#arrivalOf(came, hints.get(name) ?? NO_HINTS));
      if (!this.#options.recursive || now.kind !== 'directory' || this.#directories.has(name)) continue;
      await this.#addBelow(name, isMoved ? undefined : changes);
    }
    return changes;
  }

  #arrivalOf({ name, now }: Arrived, hints: Hints): Change[] {
    return arrival(now, hints, this.#isOwn(name)).map((type) => ({ name, type }));
  }

  #isOwn(name: string): boolean {
    return this.#options.isOwn(join(this.#top, name));
  }

  #forget(directory: string): void {
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

function isAmong(entries: readonly Arrived[], entry: Arrived): boolean {
  return entries.some(({ now }) => now.inode === entry.now.inode && now.born === entry.now.born);
}

async function lookAt(path: string): Promise<Seen | undefined> {
  try {
    return seen(await lstat(path, { bigint: true }));
  } catch {
    return undefined;
  }
}
