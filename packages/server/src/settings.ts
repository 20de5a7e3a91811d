/** Every bound and budget of the HTTP face, in milliseconds where it is a time (R113). */
export interface ServerSettings {
  /** For what changes a sandbox, and for waking one. The operation goes on; only the waiting ends. */
  readonly lifecycleMs: number;
  /** For what only looks. */
  readonly readMs: number;
  /** For questions about checkpoints, which are asked when something is wrong already (R97). */
  readonly checkpointReadMs: number;
  /** How long what is under way may still answer for itself once its time is over. */
  readonly graceMs: number;
  /** A command without a limit of its own, when the answer comes in one piece. */
  readonly execMs: number;
  /** Bytes that do not move for this long are given up. */
  readonly stallMs: number;
  readonly heartbeatMs: number;
  /** How often a key is looked up again while a stream or a socket that it opened stays open. */
  readonly keyCheckMs: number;
  /** How long a stop waits for requests, and then for operations. */
  readonly stopMs: number;
  readonly maxJsonBytes: number;
  /** Of the archive of a template, as it is sent. */
  readonly maxTemplateBytes: number;
  /** Of each of stdout and stderr, in an answer that comes in one piece. */
  readonly maxOutputBytes: number;
  /** How long the answer to a request is kept for its idempotency key. */
  readonly replayMs: number;
}

export const DEFAULT_SERVER_SETTINGS: ServerSettings = {
  lifecycleMs: 120_000,
  readMs: 10_000,
  checkpointReadMs: 1_500,
  graceMs: 250,
  execMs: 300_000,
  stallMs: 60_000,
  heartbeatMs: 15_000,
  keyCheckMs: 15_000,
  stopMs: 10_000,
  maxJsonBytes: 1024 * 1024,
  maxTemplateBytes: 8 * 1024 ** 3,
  maxOutputBytes: 8 * 1024 * 1024,
  replayMs: 24 * 3_600_000,
};
