/** The host's system directories as the guests of `base` see them. Read again when they may have changed. */
import { createHash } from 'node:crypto';
import type { Clock } from '@torpor/engine';
import { DirectoryWatch } from './directory-watch.ts';
import type { GuestTools } from './guest-tools.ts';
import type { GuestBind } from './layout.ts';
import type { ReadOnlyView } from './read-only-view.ts';
import {
  type BindSources,
  type Covered,
  coveredPaths,
  machineHasSudo,
  type SystemDirectories,
  systemBinds,
  systemDirectories,
} from './system-directories.ts';
import { directoriesLookedAt, systemFingerprint } from './system-fingerprint.ts';

export interface BaseSystem {
  readonly directories: SystemDirectories;
  /** In mount order. */
  readonly binds: readonly GuestBind[];
  /** A memory image may only be used over a system with the same fingerprint. */
  readonly fingerprint: string;
}

export interface BaseSystemsOptions {
  readonly view: ReadOnlyView;
  readonly tools: GuestTools;
  readonly clock: Clock;
}

/** A result is reused for this long: a start asks more than once, and many sandboxes start at the same time. */
const FRESH_MS = 500;

export class BaseSystems {
  readonly #options: BaseSystemsOptions;
  #last: { readonly at: number; readonly system: Promise<BaseSystem> } | undefined;
  readonly #watch = new DirectoryWatch();
  #seen: { readonly places: string; readonly quick: string } | undefined;
  #known: { readonly quick: string; readonly covered: Promise<Covered> } | undefined;

  constructor(options: BaseSystemsOptions) {
    this.#options = options;
  }

  /** At most half a second old. Quick while nothing has changed; otherwise every file of the system is examined. */
  current(): Promise<BaseSystem> {
    const now = this.#options.clock.monotonic();
    if (this.#last !== undefined && now - this.#last.at < FRESH_MS) return this.#last.system;
    const last = { at: now, system: this.#look() };
    this.#last = last;
    last.system.catch(() => {
      if (this.#last === last) this.#last = undefined;
    });
    return last.system;
  }

  close(): void {
    this.#watch.close();
  }

  /** Takes no signal of a caller: other callers may wait for the same result. */
  async #look(): Promise<BaseSystem> {
    const directories = systemDirectories();
    const asking = this.#sources(directories);
    asking.catch(() => {});
    const quick = await this.#quick(directories);
    const covered = await this.#covered(directories, quick);
    const binds = systemBinds(await asking, covered);
    // Covered files are part of the fingerprint: an image can only be used with the mounts it was made with.
    const places = JSON.stringify(binds.map(({ destination }) => destination));
    return {
      directories,
      binds,
      fingerprint: createHash('sha256').update(`${quick}\0${places}`).digest('hex'),
    };
  }

  /** A fingerprint without the covered files; recomputed only after a change. */
  async #quick(directories: SystemDirectories): Promise<string> {
    const places = JSON.stringify(directories);
    if (this.#seen?.places === places && (await this.#watch.isQuiet())) return this.#seen.quick;
    this.#watch.begin(directoriesLookedAt(directories));
    const quick = systemFingerprint(directories);
    this.#seen = { places, quick };
    return quick;
  }

  #covered(directories: SystemDirectories, quick: string): Promise<Covered> {
    if (this.#known?.quick === quick) return this.#known.covered;
    const looking = { quick, covered: coveredPaths(directories) };
    this.#known = looking;
    looking.covered.catch(() => {
      if (this.#known === looking) this.#known = undefined;
    });
    return looking.covered;
  }

  async #sources({ bound }: SystemDirectories): Promise<BindSources> {
    const { view, tools } = this.#options;
    const { signal } = new AbortController();
    const show = async (path: string) => [path, await view.show(path, signal)] as const;
    const [places, [, shown]] = await Promise.all([Promise.all(bound.map(show)), show(tools.directory)]);
    return { bound: new Map(places), tools: shown, hasSudo: machineHasSudo() };
  }
}
