/** This machine's system as the guests of `base` see it, looked at again when it may have changed. */
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
  /** In the order in which they are mounted. */
  readonly binds: readonly GuestBind[];
  /** A memory image made over another one is not to be used. */
  readonly fingerprint: string;
}

export interface BaseSystemsOptions {
  readonly view: ReadOnlyView;
  readonly tools: GuestTools;
  readonly clock: Clock;
}

/** A start asks more than once, and many start at once. */
const FRESH_MS = 500;

export class BaseSystems {
  private readonly options: BaseSystemsOptions;
  private last: { readonly at: number; readonly system: Promise<BaseSystem> } | undefined;
  private readonly watch = new DirectoryWatch();
  private seen: { readonly places: string; readonly quick: string } | undefined;
  private known: { readonly quick: string; readonly covered: Promise<Covered> } | undefined;

  constructor(options: BaseSystemsOptions) {
    this.options = options;
  }

  /** As it was a moment ago. Quick while nothing has changed; otherwise every file of the system is looked at once. */
  current(): Promise<BaseSystem> {
    const now = this.options.clock.monotonic();
    if (this.last !== undefined && now - this.last.at < FRESH_MS) return this.last.system;
    const last = { at: now, system: this.look() };
    this.last = last;
    last.system.catch(() => {
      if (this.last === last) this.last = undefined;
    });
    return last.system;
  }

  close(): void {
    this.watch.close();
  }

  /** Not ended by the wish of one caller: others may be waiting for the same. */
  private async look(): Promise<BaseSystem> {
    const directories = systemDirectories();
    const asking = this.sources(directories);
    asking.catch(() => {});
    const quick = await this.quick(directories);
    const covered = await this.covered(directories, quick);
    const binds = systemBinds(await asking, covered);
    // What is covered up is part of it: an image can only be used with the mounts it was made with.
    const places = JSON.stringify(binds.map(({ destination }) => destination));
    return {
      directories,
      binds,
      fingerprint: createHash('sha256').update(`${quick}\0${places}`).digest('hex'),
    };
  }

  /** The same as long as nothing has changed. */
  private async quick(directories: SystemDirectories): Promise<string> {
    const places = JSON.stringify(directories);
    if (this.seen?.places === places && (await this.watch.isQuiet())) return this.seen.quick;
    this.watch.begin(directoriesLookedAt(directories));
    const quick = systemFingerprint(directories);
    this.seen = { places, quick };
    return quick;
  }

  private covered(directories: SystemDirectories, quick: string): Promise<Covered> {
    if (this.known?.quick === quick) return this.known.covered;
    const looking = { quick, covered: coveredPaths(directories) };
    this.known = looking;
    looking.covered.catch(() => {
      if (this.known === looking) this.known = undefined;
    });
    return looking.covered;
  }

  private async sources({ bound }: SystemDirectories): Promise<BindSources> {
    const { view, tools } = this.options;
    const { signal } = new AbortController();
    const show = async (path: string) => [path, await view.show(path, signal)] as const;
    const [places, [, shown]] = await Promise.all([Promise.all(bound.map(show)), show(tools.directory)]);
    return { bound: new Map(places), tools: shown, hasSudo: machineHasSudo() };
  }
}
