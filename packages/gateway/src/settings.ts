/** Every bound of the gateway (R113). A new bound is one line here. */
import {
  byteCount,
  count,
  DAY_MS,
  defaultsOf,
  duration,
  type SettingOrder,
  type SettingValues,
  YEAR_MS,
} from '@torpor/protocol';

export const GATEWAY_SETTINGS = {
  holdMs: duration(60_000, 'How long a request may wait for its sandbox and its port.'),
  momentMs: duration(900, 'How long a browser waits before it is shown the waiting page.', { min: 0 }),
  wakeMs: duration(120_000, 'How long a wake may take before the gateway looks at the sandbox again.'),
  failureMs: duration(1_000, 'A wake that failed is not tried again within this time.', { min: 0 }),
  lookAgainMs: duration(50, 'How soon the gateway looks again at a sandbox that is changing.'),
  heldPerSandbox: count(512, 'Requests that may wait for one sandbox.'),
  heldOverall: count(4_096, 'Requests that may wait for sandboxes in all.'),
  heldBytesPerSandbox: byteCount(16 * 1024 ** 2, 'Memory for requests that wait for one sandbox.', {
    min: 64 * 1024,
  }),
  heldBytesOverall: byteCount(128 * 1024 ** 2, 'Memory for requests that wait, in all.', { min: 64 * 1024 }),
  passingPerSandbox: count(2_048, 'Requests and sockets under way to one sandbox.'),
  connectMs: duration(5_000, 'How long opening one connection to a port may take.'),
  connectingAtOnce: count(32, 'Connections that are being opened to one port at once.', { max: 10_000 }),
  idleConnectionMs: duration(
    1_000,
    'How long an idle connection is used again when the app makes no promise about it.',
    { min: 0 },
  ),
  idleConnectionMaxMs: duration(
    30_000,
    'How long an idle connection is kept at most, whatever the app promises.',
    { min: 0 },
  ),
  startingMs: duration(60_000, 'How long a declared service may take after a start until its port opens.'),
  portGraceMs: duration(
    2_000,
    'How long a closed port is tried when the sandbox has just woken or the service is declared.',
    { min: 0 },
  ),
  quietMs: duration(5_000, 'A stream without bytes for this long no longer keeps its sandbox awake.'),
  drainQuietMs: duration(1_000, 'A stream that was quiet for this long is not waited for before a pause.'),
  goodbyeMs: duration(3_000, 'How long the other side of a WebSocket may take to answer a close.', {
    min: 0,
  }),
  maxHeadBytes: byteCount(64 * 1024, "Size of the head of an app's answer, at most.", {
    min: 1_024,
    max: 16 * 1024 ** 2,
  }),
  linkMs: duration(600_000, 'How long a one-time link to a private preview is good for.', { max: YEAR_MS }),
  cookieMs: duration(7 * DAY_MS, 'How long a browser stays admitted to a private preview.', { max: YEAR_MS }),
} as const;

export type GatewaySettings = SettingValues<typeof GATEWAY_SETTINGS>;
export const DEFAULT_GATEWAY_SETTINGS: GatewaySettings = defaultsOf(GATEWAY_SETTINGS);

export const GATEWAY_SETTING_ORDER: readonly SettingOrder<typeof GATEWAY_SETTINGS>[] = [
  ['momentMs', '<=', 'holdMs'],
  ['connectMs', '<=', 'holdMs'],
  ['heldPerSandbox', '<=', 'heldOverall'],
  ['heldBytesPerSandbox', '<=', 'heldBytesOverall'],
  ['idleConnectionMs', '<=', 'idleConnectionMaxMs'],
  ['drainQuietMs', '<=', 'quietMs'],
];
