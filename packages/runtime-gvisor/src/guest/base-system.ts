/** The host's system directories as the guests of `base` see them. Read again when they may have changed. */
import { createHash } from 'node:crypto';
import type { Clock } from '@torpor/engine';
import { DirectoryWatcher } from './directory-watcher.ts';
import type { GuestTools } from './guest-tools.ts';
import type { GuestBind } from './layout.ts';
import type { ReadOnlyBinds } from './read-only-binds.ts';
import {
  type BindSources,
  type CoveredPaths,
  coveredPaths,
  hostHasSudo,
  type SystemDirectories,
  systemBinds,
  systemDirectories,
} from './system-directories.ts';
import { systemFingerprint, watchedDirectories } from './system-fingerprint.ts';

export interface BaseSystem {
  readonly directories: SystemDirectories;
  /** In mount order. */
  readonly binds: readonly GuestBind[];
  /** A memory image may only be used over a system with the same fingerprint. */
  readonly fingerprint: string;
}

export interface BaseSystemCacheOptions {
  readonly readOnlyBinds: ReadOnlyBinds;
  readonly tools: GuestTools;
  readonly clock: Clock;
}

/** A result is reused for this long: a start asks more than once, and many sandboxes start at the same time. */
const FRESH_MS = 500;

export class BaseSystemCache {
  readonly #options: BaseSystemCacheOptions;
  #last: { readonly at: number; readonly system: Promise<BaseSystem> } | undefined;
  readonly #watcher = new DirectoryWatcher();
  #lastFingerprint: { readonly directories: string; readonly fingerprint: string } | undefined;
  /** For the system with this fingerprint. */
  #lastCovered: { readonly fingerprint: string; readonly covered: Promise<CoveredPaths> } | undefined;

  constructor(options: BaseSystemCacheOptions) {
    this.#options = options;
  }

  /** At most half a second old. Quick while nothing has changed; otherwise every file of the system is examined. */
  current(): Promise<BaseSystem> {
    const now = this.#options.clock.monotonic();
    if (this.#last !== undefined && now - this.#last.at < FRESH_MS) return this.#last.system;
    const last = { at: now, system: this.#read() };
    this.#last = last;
    last.system.catch(() => {
      if (this.#last === last) this.#last = undefined;
    });
    return last.system;
  }

  close(): void {
    this.#watcher.close();
  }

  /** Takes no signal of a caller: other callers may wait for the same result. */
  async #read(): Promise<BaseSystem> {
    const directories = systemDirectories();
    const mounting = this.#mountSources(directories);
    mounting.catch(() => {});
    const fingerprint = await this.#fingerprint(directories);
    const covered = await this.#covered(directories, fingerprint);
    const binds = systemBinds(await mounting, covered);
    // Covered files are part of the fingerprint: an image can only be used with the mounts it was made with.
    const destinations = JSON.stringify(binds.map(({ destination }) => destination));
    return {
      directories,
      binds,
      fingerprint: createHash('sha256').update(`${fingerprint}\0${destinations}`).digest('hex'),
    };
  }

  /** Without the covered files; recomputed only after a change. */
  async #fingerprint(systemDirs: SystemDirectories): Promise<string> {
    const directories = JSON.stringify(systemDirs);
    if (this.#lastFingerprint?.directories === directories && (await this.#watcher.isQuiet()))
      return this.#lastFingerprint.fingerprint;
    this.#watcher.begin(watchedDirectories(systemDirs));
    const fingerprint = systemFingerprint(systemDirs);
    this.#lastFingerprint = { directories, fingerprint };
    return fingerprint;
  }

  #covered(directories: SystemDirectories, fingerprint: string): Promise<CoveredPaths> {
    if (this.#lastCovered?.fingerprint === fingerprint) return this.#lastCovered.covered;
    const last = { fingerprint, covered: coveredPaths(directories) };
    this.#lastCovered = last;
    last.covered.catch(() => {
      if (this.#lastCovered === last) this.#lastCovered = undefined;
    });
    return last.covered;
  }

  async #mountSources({ bound }: SystemDirectories): Promise<BindSources> {
    const { readOnlyBinds, tools } = this.#options;
    const { signal } = new AbortController();
    const mount = async (path: string) => [path, await readOnlyBinds.mount(path, signal)] as const;
    const [mounted, [, mountedTools]] = await Promise.all([
      Promise.all(bound.map(mount)),
      mount(tools.directory),
    ]);
    return { bound: new Map(mounted), tools: mountedTools, hasSudo: hostHasSudo() };
  }
}
