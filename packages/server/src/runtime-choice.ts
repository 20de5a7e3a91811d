/** Which runtimes a server has, from what its operator asked for and what there is. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import type { CheckpointStore, Clock, Report, Runtime } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import {
  beginRunscUpgrade,
  gvisorRuntime,
  probeGvisor,
  type RunningUpgrade,
  type UpgradeOptions,
} from '@torpor/runtime-gvisor';
import { PROCESS_LIMITS, processRuntime } from '@torpor/runtime-process';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import type { ServerConfig } from './config.ts';
import { openE2b } from './e2b-choice.ts';
import { isLoopbackHost } from './http/loopback.ts';

export interface ChosenRuntime {
  /** For new sandboxes. */
  readonly runtime: Runtime;
  /** For those that sandboxes of earlier were made with. */
  readonly others?: readonly Runtime[];
  /** What its users should know before they rely on it. */
  readonly limits: readonly string[];
  /** Leaves running sandboxes running. */
  close?(): Promise<void>;
  /** Improves what it runs on in the background, where there is something to improve. */
  beginUpgrade?(onDone: () => void): RunningUpgrade | undefined;
}

type Wanted = Pick<
  ServerConfig,
  'runtime' | 'host' | 'dataDir' | 'ahead' | 'configured' | 'runsc' | 'buildRunsc' | 'oldestRunsc'
>;

export async function chooseRuntime(
  config: Wanted,
  store: CheckpointStore,
  clock: Clock,
  report: Report,
): Promise<ChosenRuntime> {
  switch (config.runtime) {
    case 'process':
      return { runtime: await openProcess(config, store, clock), limits: PROCESS_LIMITS };
    case 'gvisor':
    case 'auto':
      return chooseGvisor(config, store, clock, report);
    case 'e2b': {
      const { dataDir } = config;
      const runtime = await openE2b({ dataDir, settings: settingsOf(config), clock, report }, process.env);
      return { runtime, limits: [], close: () => runtime.close() };
    }
    default:
      throw new TorporError(
        'capability_unsupported',
        `This version of Torpor has no runtime "${config.runtime}".`,
        { hint: 'Use --runtime gvisor, process or e2b, or leave it out.' },
      );
  }
}

async function chooseGvisor(
  config: Wanted,
  store: CheckpointStore,
  clock: Clock,
  report: Report,
): Promise<ChosenRuntime> {
  const { dataDir, runtime: wanted, runsc, buildRunsc, oldestRunsc } = config;
  const probe = await probeGvisor({ dataDir, runsc, signal: new AbortController().signal });
  if (!probe.ok && wanted === 'auto') return fallBack(config, store, clock, probe.why);
  if (!probe.ok) {
    throw new TorporError('capability_unsupported', `gVisor cannot be used here: ${probe.why}`, {
      hint: 'torpor doctor shows every check, and what to do about each that fails.',
    });
  }
  const runtime = await gvisorRuntime({
    dataDir,
    agentDir: await bundleAgent(),
    runsc: probe,
    warmPoolSize: config.ahead,
    oldestRunsc,
    settings: settingsOf(config),
    clock,
    report,
  });
  const hasEarlier = await stat(join(dataDir, 'process')).catch(() => undefined);
  const others = hasEarlier === undefined ? [] : [await openProcess(config, store, clock)];
  const beginUpgrade = (onDone: () => void) => {
    // A runsc that the operator has chosen stays.
    if (!buildRunsc || runsc !== undefined) return undefined;
    const adopt: UpgradeOptions['adopt'] = async (built) => {
      await runtime.adoptRunsc(built);
      onDone();
    };
    return beginRunscUpgrade({ version: probe.version, adopt, report });
  };
  return { runtime, others, limits: [], close: () => runtime.close(), beginUpgrade };
}

/** Without isolation, and never for strangers. */
async function fallBack(
  config: Wanted,
  store: CheckpointStore,
  clock: Clock,
  why: string,
): Promise<ChosenRuntime> {
  if (!isLoopbackHost(config.host)) {
    throw new TorporError(
      'capability_unsupported',
      `gVisor cannot be used here (${why}), and the process runtime does not isolate sandboxes, which is not ` +
        `for a server that listens on ${config.host}.`,
      { hint: 'Listen on 127.0.0.1, or say --runtime process if you trust everything that will run in it.' },
    );
  }
  const limits = [`Without gVisor (${why}).`, ...PROCESS_LIMITS];
  return { runtime: await openProcess(config, store, clock), limits };
}

async function openProcess(config: Wanted, store: CheckpointStore, clock: Clock): Promise<Runtime> {
  const { dataDir } = config;
  const agentDir = await bundleAgent();
  const settings = settingsOf(config);
  return processRuntime({ dataDir, agentDir, clock, settings, sealedPath: (id) => store.path(id) });
}

function settingsOf({ configured }: Wanted): RuntimeSettings {
  return configured.settings.runtimes;
}
