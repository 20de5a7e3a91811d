/** Every time limit and budget of the HTTP API (R113). A new setting is one line here. */
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

export const SERVER_SETTINGS = {
  lifecycleMs: duration(
    120_000,
    'How long a request waits for an operation. The operation continues after that.',
  ),
  readMs: duration(10_000, 'How long a request that only reads may take.'),
  checkpointReadMs: duration(1_500, 'How long a request about a checkpoint may take (R97).'),
  graceMs: duration(250, 'How long a request may still return its own error after its deadline.', { min: 0 }),
  execMs: duration(300_000, 'How long a command without a limit of its own may run.'),
  stallMs: duration(60_000, 'A transfer on which no bytes move for this long is ended.'),
  heartbeatMs: duration(15_000, 'How often an event stream without events sends a heartbeat.', {
    min: 100,
  }),
  buildEventsBeatMs: duration(15_000, 'How often a stream of build events sends a `heartbeat` event.', {
    min: 100,
  }),
  buildLogsBeatMs: duration(20_000, 'How often a stream of build logs sends a `heartbeat` event.', {
    min: 100,
  }),
  streamsPerKey: count(512, 'Streams of events, builds and turns that one API key may have open at once.', {
    max: 100_000,
  }),
  keyCheckMs: duration(15_000, 'How often the key of an open stream or socket is checked again.', {
    min: 100,
  }),
  certificateEveryMs: duration(10_000, 'How often the files of --tls-cert and --tls-key are read again.', {
    min: 10,
  }),
  stopMs: duration(10_000, 'How long a stop waits for requests, and then for operations.', { min: 0 }),
  maxJsonBytes: byteCount(1024 ** 2, 'Maximum size of a JSON body.', { min: 1_024, max: 1024 ** 3 }),
  maxTemplateBytes: byteCount(8 * 1024 ** 3, 'Maximum size of the archive of a template as it is sent.'),
  maxOutputBytes: byteCount(
    8 * 1024 ** 2,
    'Maximum bytes of stdout and of stderr in an answer that is not a stream.',
    { max: 512 * 1024 ** 2 },
  ),
  pageSessionMs: duration(7 * DAY_MS, 'How long a browser stays signed in at the page.', {
    min: 60_000,
    max: YEAR_MS,
  }),
  pageLinkMs: duration(900_000, 'How long a one-time link to the page can be used.', { max: DAY_MS }),
  replayMs: duration(DAY_MS, 'How long the answer to a request is kept for its idempotency key.', {
    max: YEAR_MS,
  }),
} as const;

export type ServerSettings = SettingValues<typeof SERVER_SETTINGS>;
export const DEFAULT_SERVER_SETTINGS: ServerSettings = defaultsOf(SERVER_SETTINGS);

export const SERVER_SETTING_ORDER: readonly SettingOrder<typeof SERVER_SETTINGS>[] = [
  ['heartbeatMs', '<', 'stallMs'],
  ['checkpointReadMs', '<=', 'readMs'],
  ['readMs', '<=', 'lifecycleMs'],
];
