/** Opens the runtimes of a server, by the configuration and by what the machine supports. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import type { LayeredCheckpointStore } from '@torpor/checkpoint-store';
import type { Clock, FaultPoints, Report, Runtime, SecretSource } from '@torpor/engine';
import { type GuardTargets, joinTargets, NO_TARGETS } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { OpenedE2bRuntime } from '@torpor/runtime-e2b';
import {
  BaseMaker,
  beginRunscUpgrade,
  checkRunsc,
  findMachineBase,
  gvisorGuardTargets,
  gvisorRuntime,
  hostChecks,
  obstacleToBase,
  probeGvisor,
} from '@torpor/runtime-gvisor';
import { PROCESS_LIMITS, processGuardTargets, processRuntime } from '@torpor/runtime-process';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import type { RuntimeChoice, ServerConfig } from './config.ts';
import { isLoopbackHost } from './http/loopback.ts';
import { openKubernetes } from './kubernetes-choice.ts';
import type { HostInspection } from './observe/machine-reports.ts';

export interface ChosenRuntime {
  /** The runtime of new sandboxes that name none. */
  readonly runtime: Runtime;
  /** Further configured runtimes, and runtimes of existing sandboxes. */
  readonly others?: readonly Runtime[];
  /** Limits of the runtime that users should know. */
  readonly limits: readonly string[];
  /** Checks what the runtime needs from this machine. */
  readonly host?: HostInspection;
  /** Leaves running sandboxes running. */
  close?(): Promise<void>;
  /** Makes what the runtime lacks in the background: a newer runsc, then an own root for `base`. */
  beginUpgrades?(hooks: UpgradeHooks): RuntimeUpgrades;
  /** The runtime that `beginUpgrades` is about. */
  readonly upgraded?: string;
}

/** The processes of all sandboxes of a server, which the guard of a node ends when the lease of the node has run out. */
export async function guardTargetsOf(
  { runtime, others = [] }: ChosenRuntime,
  dataDir: string,
): Promise<GuardTargets> {
  const targets = [runtime, ...others].map(({ name }) => {
    // The API server of Kubernetes runs them, and another node goes on with them.
    if (name === 'kubernetes' || name === 'agent-sandbox') return NO_TARGETS;
    if (name === 'gvisor') return gvisorGuardTargets(dataDir);
    if (name === 'process') return processGuardTargets(dataDir);
    throw new TorporError(
      'capability_unsupported',
      `The runtime "${name}" cannot be used by one node of several: its sandboxes run on other machines.`,
      { hint: 'Leave --node out, or use --runtime gvisor.' },
    );
  });
  return joinTargets(await Promise.all(targets));
}

interface UpgradeHooks {
  /** Prepares the built-in templates again that are outdated now. */
  renewTemplates(): void;
  /** Shows how far the next version of `base` is; null when none is being made. */
  showPhase(phase: string | null): void;
}

interface RuntimeUpgrades {
  /** Makes a new root for `base` in the background. Throws when this host cannot. */
  rebuildBase(): void;
  stop(): Promise<void>;
}

type Wanted = Pick<
  ServerConfig,
  | 'runtime'
  | 'host'
  | 'dataDir'
  | 'ahead'
  | 'configured'
  | 'runsc'
  | 'buildRunsc'
  | 'oldestRunsc'
  | 'base'
  | 'baseMirror'
>;

/**
 * Opens every configured runtime. `sharedHome` is the mark of the objects that all nodes of a cluster have in an API server of
 * Kubernetes. When one cannot be opened, those before it are closed. */
export async function chooseRuntime(
  config: Wanted,
  store: LayeredCheckpointStore,
  clock: Clock,
  report: Report,
  faults: FaultPoints,
  secrets?: SecretSource,
  sharedHome?: string,
): Promise<ChosenRuntime> {
  await using opened = new AsyncDisposableStack();
  const all: ChosenRuntime[] = [];
  for (const wanted of config.runtime) {
    const chosen = await openRuntime(
      wanted,
      { ...config, sharedHome },
      store,
      clock,
      report,
      faults,
      secrets,
    );
    opened.defer(() => chosen.close?.());
    all.push(chosen);
  }
  const running = opened.move();
  return { ...sideBySide(all), close: () => running.disposeAsync() };
}

/** The first runtime is the default. A runtime that two of them bring along is taken once. */
function sideBySide(all: readonly ChosenRuntime[]): ChosenRuntime {
  const [first] = all;
  if (first === undefined) throw new TorporError('internal', 'No runtime is configured.');
  const configured = all.map(({ runtime }) => runtime);
  const known = new Map<string, Runtime>();
  for (const runtime of [...configured, ...all.flatMap(({ others = [] }) => others)]) {
    if (!known.has(runtime.name)) known.set(runtime.name, runtime);
  }
  const withHost = all.find(({ host }) => host !== undefined);
  const withUpgrades = all.find(({ beginUpgrades }) => beginUpgrades !== undefined);
  return {
    runtime: first.runtime,
    others: [...known.values()].filter(({ name }) => name !== first.runtime.name),
    limits: all.flatMap(({ limits }) => limits),
    ...(withHost?.host === undefined ? {} : { host: withHost.host }),
    ...(withUpgrades?.beginUpgrades === undefined
      ? {}
      : { beginUpgrades: withUpgrades.beginUpgrades, upgraded: withUpgrades.runtime.name }),
  };
}

async function openRuntime(
  wanted: RuntimeChoice,
  config: Wanted & { readonly sharedHome: string | undefined },
  store: LayeredCheckpointStore,
  clock: Clock,
  report: Report,
  faults: FaultPoints,
  secrets: SecretSource | undefined,
): Promise<ChosenRuntime> {
  switch (wanted) {
    case 'process':
      return { runtime: await openProcess(config, store, clock), limits: PROCESS_LIMITS };
    case 'gvisor':
    case 'auto':
      return chooseGvisor(wanted, config, store, clock, report, faults, secrets);
    case 'e2b': {
      const { dataDir } = config;
      const runtime = await openE2b({ dataDir, settings: settingsOf(config), clock, report }, process.env);
      return { runtime, limits: [], close: () => runtime.close() };
    }
    case 'kubernetes':
    case 'agent-sandbox': {
      const { dataDir, sharedHome } = config;
      return openKubernetes(wanted, { dataDir, sharedHome, settings: settingsOf(config), clock, report });
    }
  }
}

async function chooseGvisor(
  wanted: 'gvisor' | 'auto',
  config: Wanted,
  store: LayeredCheckpointStore,
  clock: Clock,
  report: Report,
  faults: FaultPoints,
  secrets: SecretSource | undefined,
): Promise<ChosenRuntime> {
  const { dataDir, runsc, oldestRunsc } = config;
  const probe = await probeGvisor({ dataDir, runsc, signal: new AbortController().signal });
  if (!probe.ok && wanted === 'auto') return fallBack(config, store, clock, probe.why);
  if (!probe.ok) {
    throw new TorporError('capability_unsupported', `gVisor cannot be used here: ${probe.why}`, {
      hint: 'torpor doctor shows every check, and how to fix each one that fails.',
    });
  }
  const runtime = await gvisorRuntime({
    dataDir,
    layerStore: store.layerStore,
    agentDir: await bundleAgent({ dataDir }),
    runsc: probe,
    warmPoolSize: config.ahead,
    oldestRunsc,
    ownBase: config.base === 'host' ? null : () => findMachineBase(),
    settings: settingsOf(config),
    secrets,
    clock,
    faults,
    report,
  });
  const hasEarlier = await stat(join(dataDir, 'process')).catch(() => undefined);
  const others = hasEarlier === undefined ? [] : [await openProcess(config, store, clock)];
  const beginUpgrades = (hooks: UpgradeHooks) =>
    beginGvisorUpgrades(config, { runtime, version: probe.version, report, ...hooks });
  const limits = limitsOfBase(config);
  const host: HostInspection = {
    quick: async (signal) => [await checkRunsc({ dataDir, runsc, signal })],
    all: (signal) => hostChecks({ dataDir, runsc, signal }),
  };
  return { runtime, others, limits, host, close: () => runtime.close(), beginUpgrades };
}

/** Said at the start while `base` is a view of the host. */
function limitsOfBase({ base }: Wanted): string[] {
  if (base === 'host' || findMachineBase() !== undefined) return [];
  const obstacle = obstacleToBase();
  const view = 'Sandboxes see the system directories of this machine, read-only';
  return obstacle === undefined
    ? [`${view}, until a root for the template base is made (some minutes; torpor template ls).`]
    : [`${view}: no root for the template base can be made, because ${obstacle}.`];
}

interface GvisorUpgradeContext extends UpgradeHooks {
  readonly runtime: Awaited<ReturnType<typeof gvisorRuntime>>;
  readonly version: string;
  readonly report: Report;
}

function beginGvisorUpgrades(
  { runsc, buildRunsc, base, baseMirror }: Wanted,
  { runtime, version, report, renewTemplates, showPhase }: GvisorUpgradeContext,
): RuntimeUpgrades {
  const adopt = async (built: { readonly program: string; readonly version: string }) => {
    await runtime.adoptRunsc(built);
    renewTemplates();
  };
  // A runsc that the operator configured is not replaced.
  const runscUpgrade =
    buildRunsc && runsc === undefined ? beginRunscUpgrade({ version, adopt, report }) : undefined;
  const maker = new BaseMaker({
    node: process.execPath,
    mirror: baseMirror,
    onPhase: showPhase,
    onMade: renewTemplates,
    report,
  });
  // One after the other: both keep the processors busy for a minute or two.
  const ensuring =
    base === 'host' ? undefined : (runscUpgrade?.over ?? Promise.resolve()).then(() => maker.ensure());
  return {
    rebuildBase: () => {
      const obstacle = base === 'host' ? 'the setting "base" is "host"' : maker.obstacle();
      if (obstacle !== undefined) throw noOwnBase(obstacle);
      maker.rebuild();
    },
    stop: async () => {
      await runscUpgrade?.stop();
      await maker.stop();
      await ensuring;
    },
  };
}

function noOwnBase(obstacle: string): TorporError {
  return new TorporError('capability_unsupported', `No root for "base" can be made here: ${obstacle}.`, {
    hint: 'torpor doctor shows what is missing.',
  });
}

/** The process runtime does not isolate sandboxes, so it is refused for a server that other machines can reach. */
async function fallBack(
  config: Wanted,
  store: LayeredCheckpointStore,
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

async function openProcess(config: Wanted, store: LayeredCheckpointStore, clock: Clock): Promise<Runtime> {
  const { dataDir } = config;
  const agentDir = await bundleAgent({ dataDir });
  const settings = settingsOf(config);
  return processRuntime({ dataDir, agentDir, clock, settings, sealedPath: (id) => store.path(id) });
}

function settingsOf({ configured }: Wanted): RuntimeSettings {
  return configured.settings.runtimes;
}
