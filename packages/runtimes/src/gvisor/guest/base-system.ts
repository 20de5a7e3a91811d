/** This machine's system as the guests of `base` see it, looked at again when it may have changed. */
import { createHash } from 'node:crypto';
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
import { systemFingerprint } from './system-fingerprint.ts';

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
}

export class BaseSystems {
  private readonly options: BaseSystemsOptions;
  private known: { readonly quick: string; readonly covered: Promise<Covered> } | undefined;

  constructor(options: BaseSystemsOptions) {
    this.options = options;
  }

  /** Quick while nothing has changed; otherwise every file of the system is looked at once. */
  async current(signal: AbortSignal): Promise<BaseSystem> {
    const directories = await systemDirectories();
    const quick = systemFingerprint(directories);
    const covered = await this.covered(directories, quick);
    const binds = systemBinds(await this.sources(directories, signal), covered);
    // What is covered up is part of it: an image can only be used with the mounts it was made with.
    const places = JSON.stringify(binds.map(({ destination }) => destination));
    return {
      directories,
      binds,
      fingerprint: createHash('sha256').update(`${quick}\0${places}`).digest('hex'),
    };
  }

  /** Not ended by the wish of one caller: others may be waiting for the same. */
  private covered(directories: SystemDirectories, quick: string): Promise<Covered> {
    if (this.known?.quick === quick) return this.known.covered;
    const looking = { quick, covered: coveredPaths(directories) };
    this.known = looking;
    looking.covered.catch(() => {
      if (this.known === looking) this.known = undefined;
    });
    return looking.covered;
  }

  private async sources({ bound }: SystemDirectories, signal: AbortSignal): Promise<BindSources> {
    const { view, tools } = this.options;
    const places = new Map<string, string>();
    for (const path of bound) places.set(path, await view.show(path, signal));
    return {
      bound: places,
      tools: await view.show(tools.directory, signal),
      hasSudo: await machineHasSudo(),
    };
  }
}
