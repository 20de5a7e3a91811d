/**
 * Builds the pinned runsc while a server runs on an older one, and then lets new sandboxes use it. The build happens once
 * per host, at the lowest priority. After a failure the server goes on with the runsc it has.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { trialBoot } from '../host-checks/trial-boot.ts';
import { buildRunsc, obstacleToBuilding } from './build.mjs';
import { dayOf, isRecent, PINNED } from './releases.mjs';

export interface UpgradeOptions {
  /** The version in use. */
  readonly version: string;
  adopt(runsc: { readonly program: string; readonly version: string }): Promise<void>;
  readonly report: (what: string, details: Readonly<Record<string, unknown>>) => void;
  readonly build?: typeof buildRunsc;
}

export interface RunningUpgrade {
  /** Resolves when the upgrade has succeeded or failed. */
  readonly over: Promise<void>;
  stop(): Promise<void>;
}

/** Undefined when the version is recent, or Go is missing. */
export function beginRunscUpgrade(options: UpgradeOptions): RunningUpgrade | undefined {
  if (isRecent(dayOf(options.version))) return undefined;
  if (options.build === undefined && obstacleToBuilding() !== undefined) return undefined;
  const stopping = new AbortController();
  const over = upgrade(options, stopping.signal).catch((error: unknown) => {
    if (!stopping.signal.aborted) options.report('a newer runsc could not be built', { error });
  });
  return {
    over,
    stop: async () => {
      stopping.abort();
      await over;
    },
  };
}

async function upgrade(
  { adopt, report, build = buildRunsc }: UpgradeOptions,
  signal: AbortSignal,
): Promise<void> {
  report('a newer runsc is being built', { version: PINNED.name });
  const program = await build({ waitForOthers: true, signal });
  const directory = await mkdtemp(join(tmpdir(), 'torpor-boot-'));
  try {
    await trialBoot(program, directory, signal);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  await adopt({ program, version: PINNED.name });
  report('a newer runsc is in use for new sandboxes', { version: PINNED.name });
}
