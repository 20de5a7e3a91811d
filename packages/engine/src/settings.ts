/**
 * Every delay, bound and budget of the engine (R113). A new one is one line here: its type, its default, its
 * environment variable and its place in the docs follow from it.
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
  operationMs: duration(120_000, 'How long an operation may take before it is given up and rolled back.'),
  templateMs: duration(900_000, 'How long a template may take to be unpacked, booted and sealed.'),
  callMs: duration(60_000, 'How long one call to a runtime or the checkpoint store may take.'),
  captureMs: duration(
    45_000,
    'How long the memory of a sandbox may take to be captured; the sandbox stands still meanwhile, and runs on after it.',
  ),
  drainMs: duration(5_000, 'How long requests in flight may go on once a pause has begun.', { min: 0 }),
  observeMs: duration(
    2_000,
    "How long a question about a sandbox's real state may take before the answer is `unknown`.",
  ),
  serverLeaseMs: duration(
    15_000,
    'How long a server is believed alive without a heartbeat, of which it sends three in that time; then others take over its operations.',
    { min: 300 },
  ),
  reconcileEveryMs: duration(30_000, 'How often what runs is compared with what should run.', { min: 100 }),
  sweepEveryMs: duration(1_000, 'How often timeouts and idle sandboxes are looked for.', { min: 10 }),
  pauseRetryMs: duration(
    3_600_000,
    'How long an automatic pause waits before it tries again when the memory cannot be captured and the policy forbids to keep only the files.',
    { min: 1_000 },
  ),
  activityEveryMs: duration(10_000, "How often a sandbox's activity is written to the database, at most."),
  noticeAtLeastEveryMs: duration(
    5_000,
    'Readers of the ledger look again after this long without a notice of the database.',
    { min: 10 },
  ),
  pageSize: count(100, 'Rows that the reconciler and the sweeps read at once.', { max: 10_000 }),
  hands: count(8, 'Sandboxes that a round of the reconciler works on at once.', { max: 256 }),
  collectEveryMs: duration(300_000, 'How often checkpoints that nothing refers to are looked for.', {
    min: 1_000,
  }),
  idempotencyMs: duration(DAY_MS, 'How long an idempotency key of an operation is remembered.', {
    max: YEAR_MS,
  }),
  keepPrevious: count(1, 'Checkpoints before the present one that a sandbox keeps, beside named ones.', {
    min: 0,
    max: 1_000,
  }),
  expiryNoticeMs: duration(
    DAY_MS,
    'How long before a checkpoint or a paused sandbox is deleted for its age this is announced.',
    {
      min: 0,
      max: YEAR_MS,
    },
  ),
  deletePausedAfterMs: duration(
    0,
    'How long a paused sandbox is kept without use when neither it nor its organisation says. 0: for good.',
    { min: 0, max: 10 * YEAR_MS },
  ),
  retentionEveryMs: duration(60_000, 'How often paused sandboxes that nobody uses are looked for.', {
    min: 10,
  }),
  diskEveryMs: duration(10_000, 'How often the room on the disk of the checkpoints is looked at.', {
    min: 10,
  }),
  diskReserveBytes: byteCount(
    32 * 1024 ** 2,
    'Room that is kept for killing, deleting and starting on a full disk, at most a quarter of the disk. 0 keeps none.',
    { min: 0 },
  ),
  diskLowBytes: byteCount(
    10 * 1024 ** 3,
    'Less free room than this, or than `diskLowPercent` if that is less, is announced. 0: only the share counts.',
    { min: 0, max: 1024 ** 5 },
  ),
  diskLowPercent: count(10, 'The same as a share of the disk. 0: only the bytes count.', {
    min: 0,
    max: 100,
  }),
  diskRefuseBytes: byteCount(
    2 * 1024 ** 3,
    'With less free room than this, or than `diskRefusePercent` if that is less, creates, forks and snapshots are refused. 0: only the share counts.',
    { min: 0, max: 1024 ** 5 },
  ),
  diskRefusePercent: count(3, 'The same as a share of the disk. 0: only the bytes count.', {
    min: 0,
    max: 100,
  }),
  inspectEveryMs: duration(
    15_000,
    'How long the rounds wait between two looks at all checkpoints, in presence and sizes.',
    { min: 100 },
  ),
  inspectExternalEveryMs: duration(
    600_000,
    'The same for checkpoints that a provider keeps, where each look is a request to the provider.',
    { min: 100 },
  ),
  inspectMs: duration(10_000, 'How long a look at one checkpoint may take before its health is `unknown`.'),
  inspectHands: count(2, 'Checkpoints that are looked at at once.', { max: 256 }),
  inspectLoadPercent: count(
    10,
    'The part of its time that each of those looks in the background may take; it rests for the other part.',
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
    'How long after a start, or after a job was added, the ends of jobs are waited for.',
  ),
  jobWatchRetryMs: duration(1_000, 'How long a watch of jobs that was cut off waits before it looks again.'),
} as const;

export type Settings = SettingValues<typeof ENGINE_SETTINGS>;
export const DEFAULT_SETTINGS: Settings = defaultsOf(ENGINE_SETTINGS);

export const ENGINE_SETTING_ORDER: readonly SettingOrder<typeof ENGINE_SETTINGS>[] = [
  ['callMs', '<=', 'operationMs'],
  ['callMs', '<=', 'templateMs'],
  ['captureMs', '<', 'operationMs'],
  ['observeMs', '<=', 'callMs'],
  ['drainMs', '<', 'operationMs'],
];
