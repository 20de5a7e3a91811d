/** Every delay, bound and budget of the engine, in milliseconds where it is a time (R113). */
export interface Settings {
  /** How long an operation may take in all before it is given up and rolled back. */
  readonly operationMs: number;
  /** How long a template may take to be prepared: unpacked, booted, its services started, sealed. */
  readonly templateMs: number;
  /** How long one call to a runtime or the checkpoint store may take. */
  readonly callMs: number;
  /** How long requests in flight may go on once a pause has closed the door. */
  readonly drainMs: number;
  /** How long a question about a sandbox's real state may take before the answer is `unknown`. */
  readonly observeMs: number;
  /** How long a server is believed alive without a heartbeat; its operations are taken over after that. */
  readonly serverLeaseMs: number;
  readonly reconcileEveryMs: number;
  readonly sweepEveryMs: number;
  /** How often activity in memory is written to a sandbox's heartbeat row, at most. */
  readonly activityEveryMs: number;
  /** Readers of the ledger look again after this long without a notice. */
  readonly noticeAtLeastEveryMs: number;
  /** Rows read at once by the reconciler and the sweeps. */
  readonly pageSize: number;
  /** How many sandboxes a round works on at once. */
  readonly hands: number;
  /** How often checkpoints that nothing refers to are looked for, which reads all of them. */
  readonly collectEveryMs: number;
  readonly idempotencyMs: number;
  /** How many checkpoints before the present one a sandbox keeps, beside those that have a name. */
  readonly keepPrevious: number;
  /** How long before a checkpoint expires its expiry is announced. */
  readonly expiryNoticeMs: number;
  /** A sealed checkpoint's contents are read again after this long. */
  readonly scrubEveryMs: number;
  /** A difference between wall clock and monotonic clock larger than this is a jump. */
  readonly clockJumpMs: number;
  readonly defaultIdleMs: number;
  /** How long after a start, or after a job was added, the ends of jobs are waited for. */
  readonly jobWatchDelayMs: number;
  /** How long a watch that was cut off waits before it looks again. */
  readonly jobWatchRetryMs: number;
}

export const DEFAULT_SETTINGS: Settings = {
  operationMs: 120_000,
  templateMs: 900_000,
  callMs: 60_000,
  drainMs: 5_000,
  observeMs: 2_000,
  serverLeaseMs: 15_000,
  reconcileEveryMs: 30_000,
  sweepEveryMs: 1_000,
  activityEveryMs: 10_000,
  noticeAtLeastEveryMs: 5_000,
  pageSize: 100,
  hands: 8,
  collectEveryMs: 300_000,
  idempotencyMs: 24 * 3_600_000,
  keepPrevious: 1,
  expiryNoticeMs: 24 * 3_600_000,
  scrubEveryMs: 7 * 24 * 3_600_000,
  clockJumpMs: 5_000,
  defaultIdleMs: 300_000,
  jobWatchDelayMs: 200,
  jobWatchRetryMs: 1_000,
};
