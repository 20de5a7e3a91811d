/** Chooses the runtimes of a server from the configuration and from what the machine supports. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import type { CheckpointStore, Clock, Report, Runtime } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import type { OpenedE2bRuntime } from '@torpor/runtime-e2b';
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
import { isLoopbackHost } from './http/loopback.ts';

export interface ChosenRuntime {
  /** The runtime of new sandboxes. */
  readonly runtime: Runtime;
  /** Runtimes of existing sandboxes. */
  readonly others?: readonly Runtime[];
  /** Limits of the runtime that users should know. */
  readonly limits: readonly string[];
  /** Leaves running sandboxes running. */
  close?(): Promise<void>;
  /** Builds a newer runsc in the background, if the current one is old. */
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
      hint: 'torpor doctor shows every check, and how to fix each one that fails.',
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
    // A runsc that the operator configured is not replaced.
    if (!buildRunsc || runsc !== undefined) return undefined;
    const adopt: UpgradeOptions['adopt'] = async (built) => {
      await runtime.adoptRunsc(built);
      onDone();
    };
    return beginRunscUpgrade({ version: probe.version, adopt, report });
  };
  return { runtime, others, limits: [], close: () => runtime.close(), beginUpgrade };
}

/** The process runtime does not isolate sandboxes, so it is refused for a server that other machines can reach. */
async function fallBack(
  config: Wanted,
  store: CheckpointStore,
  clock: Clock,
  why: string,
): Promise<ChosenRuntime> {
  if (!isLoopbackHost(config.host)) {
    throw new TorporError(
      'capability_unsupported',
      `gVisor cannot be used here (${why}). The process runtime does not isolate sandboxes, so it is not used ` +
        `for a server that listens on ${config.host}.`,
      {
        hint: 'Listen on 127.0.0.1, or use --runtime process if you trust everything that will run in the sandboxes.',
      },
    );
  }
  const limits = [`Without gVisor (${why}).`, ...PROCESS_LIMITS];
  return { runtime: await openProcess(config, store, clock), limits };
}

/** Reads the provider's address and key from the environment. E2B's own variable names are accepted too. */
async function openE2b(
  ctx: {
    readonly dataDir: string;
    readonly settings: RuntimeSettings;
    readonly clock: Clock;
    readonly report: Report;
  },
  env: NodeJS.ProcessEnv,
): Promise<OpenedE2bRuntime> {
  const of = (name: string) => env[`TORPOR_${name}`] || env[name] || undefined;
  const apiKey = of('E2B_API_KEY');
  if (apiKey === undefined) {
    throw new TorporError('invalid_request', 'The runtime "e2b" needs the API key of its provider.', {
      hint: 'Set TORPOR_E2B_API_KEY, and TORPOR_E2B_API_URL or TORPOR_E2B_DOMAIN to the address of the provider.',
    });
  }
  // Loaded only here, because the package is large.
  const { e2bRuntime } = await import('@torpor/runtime-e2b');
  return e2bRuntime({
    apiKey,
    apiUrl: of('E2B_API_URL'),
    sandboxUrl: of('E2B_SANDBOX_URL'),
    domain: of('E2B_DOMAIN'),
    template: of('E2B_TEMPLATE'),
    ...ctx,
  });
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
