/** Timeouts and durations of the runtimes that an operator can set (R113). A new setting is one entry here. */
import {
  count,
  defaultsOf,
  duration,
  HOUR_MS,
  MINUTE_MS,
  type SettingOrder,
  type SettingValues,
  YEAR_MS,
} from '@torpor/protocol';

export const RUNTIME_SETTINGS = {
  serviceReadyMs: duration(
    45_000,
    'How long a declared service without its own timeout may take until it is ready.',
  ),
  serviceAnswerMs: duration(10_000, 'How long a service may take to answer one request of its ready check.'),
  runscCreateMs: duration(30_000, 'gVisor: how long `runsc create` may take.'),
  runscStartMs: duration(30_000, 'gVisor: how long `runsc start` may take.'),
  runscRunMs: duration(60_000, 'gVisor: how long `runsc run` may take.'),
  runscPauseMs: duration(30_000, 'gVisor: how long `runsc pause` may take.'),
  runscResumeMs: duration(300_000, 'gVisor: how long `runsc resume` may take.'),
  runscCheckpointMs: duration(300_000, 'gVisor: how long `runsc checkpoint` may take.'),
  runscRestoreMs: duration(300_000, 'gVisor: how long `runsc restore` may take.'),
  runscKillMs: duration(10_000, 'gVisor: how long `runsc kill` may take.'),
  runscDeleteMs: duration(30_000, 'gVisor: how long `runsc delete` may take.'),
  runscStateMs: duration(5_000, 'gVisor: how long `runsc state` may take.'),
  sentryDeathMs: duration(30_000, 'gVisor: how long the kernel may take to end a killed sentry.'),
  aheadKeepMs: duration(
    30 * MINUTE_MS,
    'gVisor: a pre-created container is removed when unused for this long.',
    {
      min: 1_000,
      max: YEAR_MS,
    },
  ),
  warmKeepMs: duration(
    HOUR_MS,
    'gVisor: how long a paused sandbox may stay in memory, so that it wakes within milliseconds. 0 keeps none.',
    { min: 0, max: YEAR_MS },
  ),
  warmMemoryMb: count(
    0,
    'gVisor: how many megabytes paused sandboxes that stay in memory, memory images at hand and pre-created containers may take together. 0 means a quarter of the memory of the machine.',
    { min: 0 },
  ),
  e2bRequestMs: duration(60_000, 'E2B: how long one request to the provider may take.'),
  e2bLifetimeMs: duration(
    3_600_000,
    'E2B: how long a sandbox runs at the provider without a renewal. The server renews it three times in that time.',
    { min: 15_000 },
  ),
  kubernetesRequestMs: duration(15_000, 'Kubernetes: how long one request to the API server may take.'),
  kubernetesBlockedMs: duration(
    60_000,
    'Kubernetes: how long a new pod may wait for a node, or for an image that cannot be pulled, before the start fails.',
  ),
  agentSandboxMs: duration(
    120_000,
    'agent-sandbox: how long a Sandbox may take to show that it is suspended, or that it runs again.',
  ),
} as const;

export type RuntimeSettings = SettingValues<typeof RUNTIME_SETTINGS>;
export const DEFAULT_RUNTIME_SETTINGS: RuntimeSettings = defaultsOf(RUNTIME_SETTINGS);

export const RUNTIME_SETTING_ORDER: readonly SettingOrder<typeof RUNTIME_SETTINGS>[] = [
  ['serviceAnswerMs', '<=', 'serviceReadyMs'],
  ['e2bRequestMs', '<', 'e2bLifetimeMs'],
];
