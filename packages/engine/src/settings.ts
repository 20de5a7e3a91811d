/**
 * Every delay, limit and budget of the engine (R113). A new setting is one line here: its type, default, environment
 * variable and documentation follow from the line.
 */
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

export const ENGINE_SETTINGS = {
  operationMs: duration(120_000, 'How long an operation may take before it is stopped and rolled back.'),
  templateMs: duration(900_000, 'How long a template may take to be unpacked, booted and sealed.'),
  callMs: duration(60_000, 'How long one call to a runtime or the checkpoint store may take.'),
  captureMs: duration(
    45_000,
    "How long the capture of a sandbox's memory may take; the sandbox is frozen meanwhile.",
  ),
  drainMs: duration(5_000, 'How long requests in flight may continue after a pause has begun.', { min: 0 }),
  observeMs: duration(
    2_000,
    "How long a question about a sandbox's real state may take before the answer is `unknown`.",
  ),
  serverLeaseMs: duration(
    15_000,
    'How long a server counts as alive without a heartbeat; it sends three heartbeats in that time. Then other servers take over its operations.',
    { min: 300 },
  ),
  nodeLeaseMs: duration(
    30_000,
    'How long a node counts as alive without a renewal of its lease; it sends three renewals in that time. Then other nodes take its sandboxes over.',
    { min: 300 },
  ),
  nodeStopMs: duration(
    5_000,
    'How long before the end of its lease a node that could not renew it ends everything that it runs.',
    { min: 0 },
  ),
  nodeDrainMs: duration(
    300_000,
    'How long a stop with --drain-on-stop waits until the sandboxes have moved to other nodes.',
    { min: 0 },
  ),
  nodeClockMs: duration(
    10_000,
    'A node whose clock differs from that of the database by more than this does not join.',
    { min: 100, max: YEAR_MS },
  ),
  reconcileEveryMs: duration(30_000, 'How often the reconciler compares what runs with what should run.', {
    min: 100,
  }),
  sweepEveryMs: duration(
    1_000,
    'How often the server checks for sandboxes that have timed out or are idle.',
    { min: 10 },
  ),
  pauseRetryMs: duration(
    3_600_000,
    'How long an automatic pause waits before it tries again when the memory cannot be captured and the policy does not allow to keep only the files.',
    { min: 1_000 },
  ),
  activityEveryMs: duration(
    10_000,
    "The shortest time between two writes of a sandbox's activity to the database.",
  ),
  noticeAtLeastEveryMs: duration(
    5_000,
    'Readers of the ledger read again after this long without a notification of the database.',
    { min: 10 },
  ),
  pageSize: count(100, 'Rows that the reconciler and the sweeper read at once.', { max: 10_000 }),
  hands: count(8, 'Sandboxes that a round of the reconciler or the sweeper handles at once.', { max: 256 }),
  collectEveryMs: duration(300_000, 'How often checkpoints that nothing refers to are collected.', {
    min: 1_000,
  }),
  idempotencyMs: duration(DAY_MS, 'How long an idempotency key of an operation is remembered.', {
    max: YEAR_MS,
  }),
  keepPrevious: count(
    1,
    'Checkpoints before the current one that a sandbox keeps, in addition to named ones.',
    {
      min: 0,
      max: 1_000,
    },
  ),
  expiryNoticeMs: duration(
    DAY_MS,
    'How long before its deletion the expiry of a checkpoint or a paused sandbox is announced.',
    {
      min: 0,
      max: YEAR_MS,
    },
  ),
  deletePausedAfterMs: duration(
    0,
    'How long an unused paused sandbox is kept when neither it nor its organisation sets a retention. 0: for good.',
    { min: 0, max: 10 * YEAR_MS },
  ),
  retentionEveryMs: duration(
    60_000,
    'How often the server checks for paused sandboxes whose retention is over.',
    {
      min: 10,
    },
  ),
  diskEveryMs: duration(10_000, 'How often the free space on the disk of the checkpoints is checked.', {
    min: 10,
  }),
  diskReserveBytes: byteCount(
    32 * 1024 ** 2,
    'Disk space that is reserved for killing, deleting and starting on a full disk, at most a quarter of the disk. 0 reserves none.',
    { min: 0 },
  ),
  diskLowBytes: byteCount(
    10 * 1024 ** 3,
    'With less free space than this, or than `diskLowPercent` if that is less, the disk counts as low. 0: only the share counts.',
    { min: 0, max: 1024 ** 5 },
  ),
  diskLowPercent: count(10, 'The same as a share of the disk. 0: only the bytes count.', {
    min: 0,
    max: 100,
  }),
  diskRefuseBytes: byteCount(
    2 * 1024 ** 3,
    'With less free space than this, or than `diskRefusePercent` if that is less, creates, forks and snapshots are refused. 0: only the share counts.',
    { min: 0, max: 1024 ** 5 },
  ),
  diskRefusePercent: count(3, 'The same as a share of the disk. 0: only the bytes count.', {
    min: 0,
    max: 100,
  }),
  inspectEveryMs: duration(
    15_000,
    'How long the server waits between two inspections of the presence and sizes of all checkpoints.',
    { min: 100 },
  ),
  inspectExternalEveryMs: duration(
    600_000,
    'The same for checkpoints that a provider keeps or only the store has, where each inspection is a request to them.',
    { min: 100 },
  ),
  inspectMs: duration(
    10_000,
    'How long the inspection of one checkpoint may take before its health is `unknown`.',
  ),
  inspectHands: count(2, 'Checkpoints that are inspected at once.', { max: 256 }),
  inspectLoadPercent: count(
    10,
    'The share of time that each background inspection may use the disk; it pauses for the rest.',
    { max: 100 },
  ),
  scrubEveryMs: duration(7 * DAY_MS, "How often a sealed checkpoint's contents are read again.", {
    min: 60_000,
    max: YEAR_MS,
  }),
  clockJumpMs: duration(
    5_000,
    'A difference between wall clock and monotonic clock larger than this is a jump.',
    { min: 100 },
  ),
  defaultIdleMs: duration(300_000, 'How long a sandbox without a policy of its own may be idle.', {
    min: 1_000,
    max: YEAR_MS,
  }),
  jobWatchDelayMs: duration(
    200,
    'How long after a start, or after a job was added, the server begins to wait for the ends of jobs.',
  ),
  jobWatchRetryMs: duration(
    1_000,
    'How long the watch of jobs waits after its connection broke before it connects again.',
  ),
} as const;

export type Settings = SettingValues<typeof ENGINE_SETTINGS>;
export const DEFAULT_SETTINGS: Settings = defaultsOf(ENGINE_SETTINGS);

export const ENGINE_SETTING_ORDER: readonly SettingOrder<typeof ENGINE_SETTINGS>[] = [
  ['callMs', '<=', 'operationMs'],
  ['callMs', '<=', 'templateMs'],
  ['captureMs', '<', 'operationMs'],
  ['observeMs', '<=', 'callMs'],
  ['drainMs', '<', 'operationMs'],
  ['nodeStopMs', '<', 'nodeLeaseMs'],
];
