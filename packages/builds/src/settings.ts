/** Every bound, budget and cap of builds, in milliseconds where it is a time (R113). */
import { PLANS, type PlanChoice, USUAL_PLAN } from './plans.ts';
import type { FileLimits } from './runners/generated-files.ts';

export interface BuildSettings extends PlanChoice {
  /** How many builds one server works on at once. */
  readonly workers: number;
  /** How long a worker is believed alive without a sign of life. */
  readonly leaseMs: number;
  readonly pollMs: number;
  readonly stopWithinMs: number;
  /** How often a build may be begun again after its worker died. */
  readonly attempts: number;
  /** How many may wait in line, of all users together. */
  readonly maxWaiting: number;
  /** A job that waits or works for longer than this has been forgotten by everybody, and fails. */
  readonly staleMs: number;

  readonly lifetimeSeconds: number;
  readonly runnerMs: number;
  readonly writeMs: number;
  readonly installMs: number;
  readonly installRetryMs: number;
  readonly checkMs: number;
  /** How long the application may take until it answers below 500, and how often it is asked. */
  readonly liveMs: number;
  readonly firstLookMs: number;
  readonly longestLookMs: number;

  /** How long streams of events stay open after `ready` for the pause of the preview. */
  readonly followAfterReadyMs: number;

  readonly resumeAttempts: number;
  readonly resumeGapMs: number;
  readonly previewCheckMs: number;

  readonly files: FileLimits;
  readonly maxLogLines: number;
  /**
   * How long the files and the log of a build are kept after its end, and of how many builds per project. Those of the
   * newest ready build of a project are kept for as long as its preview exists. Rows and versions stay for ever.
   */
  readonly keepFilesMs: number;
  readonly keepLogsMs: number;
  readonly keepBuildsPerProject: number;
  /** How often builds to forget are looked for, and how many of them one round looks at. */
  readonly retentionEveryMs: number;
  readonly retentionBatch: number;
  readonly upkeepMs: number;
  /** How long after its end the sandboxes of a failed build are still looked for. */
  readonly tidyMs: number;
  readonly noticeAtLeastEveryMs: number;
}

export const DEFAULT_BUILD_SETTINGS: BuildSettings = {
  workers: 4,
  leaseMs: 15_000,
  pollMs: 5_000,
  stopWithinMs: 5_000,
  attempts: 3,
  maxWaiting: 100,
  plans: PLANS,
  defaultPlan: USUAL_PLAN,
  planOfUser: {},
  staleMs: 48 * 3_600_000,

  lifetimeSeconds: 3_600,
  runnerMs: 15 * 60_000,
  writeMs: 60_000,
  installMs: 300_000,
  installRetryMs: 10_000,
  checkMs: 120_000,
  liveMs: 120_000,
  firstLookMs: 50,
  longestLookMs: 3_000,

  followAfterReadyMs: 60_000,

  resumeAttempts: 2,
  resumeGapMs: 5_000,
  previewCheckMs: 10_000,

  files: { count: 2_000, fileBytes: 5 * 1024 * 1024, totalBytes: 20 * 1024 * 1024 },
  maxLogLines: 50_000,
  keepFilesMs: 30 * 24 * 3_600_000,
  keepLogsMs: 7 * 24 * 3_600_000,
  keepBuildsPerProject: 50,
  retentionEveryMs: 60_000,
  retentionBatch: 100,
  upkeepMs: 5_000,
  tidyMs: 10 * 60_000,
  noticeAtLeastEveryMs: 5_000,
};
