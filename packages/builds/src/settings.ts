/** Every bound, budget and cap of builds, in milliseconds where it is a time (R113). */
import type { FileLimits } from './runners/generated-files.ts';

/** What users of one kind may have. Which user has which plan is configuration. */
export interface Plan {
  /** How much further ahead in the line: 0 to 999. */
  readonly boost: number;
  readonly perUser: number;
  readonly perProject: number;
  readonly perDay: number;
  /** Iterations of one build before somebody has to say that it should go on; three times that is the end. */
  readonly iterations: number;
  /** What a build is thought to take before there is experience. */
  readonly usualSeconds: number;
}

export interface BuildSettings {
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
  readonly plans: Readonly<Record<string, Plan>>;
  readonly defaultPlan: string;
  readonly planOfUser: Readonly<Record<string, string>>;
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

  readonly resumeAttempts: number;
  readonly resumeGapMs: number;
  readonly previewCheckMs: number;

  readonly files: FileLimits;
  readonly maxLogLines: number;
  readonly keepLogsMs: number;
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
  plans: {
    small: { boost: 0, perUser: 2, perProject: 2, perDay: 5, iterations: 2, usualSeconds: 480 },
    medium: { boost: 2, perUser: 3, perProject: 3, perDay: 50, iterations: 3, usualSeconds: 600 },
    large: { boost: 5, perUser: 10, perProject: 5, perDay: 200, iterations: 5, usualSeconds: 900 },
  },
  defaultPlan: 'large',
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

  resumeAttempts: 2,
  resumeGapMs: 5_000,
  previewCheckMs: 10_000,

  files: { count: 2_000, fileBytes: 5 * 1024 * 1024, totalBytes: 20 * 1024 * 1024 },
  maxLogLines: 50_000,
  keepLogsMs: 7 * 24 * 3_600_000,
  upkeepMs: 5_000,
  tidyMs: 10 * 60_000,
  noticeAtLeastEveryMs: 5_000,
};

export function planOf({ plans, planOfUser, defaultPlan }: BuildSettings, user: string) {
  const name = (Object.hasOwn(planOfUser, user) ? planOfUser[user] : undefined) ?? defaultPlan;
  const plan = Object.hasOwn(plans, name) ? plans[name] : undefined;
  if (plan === undefined) throw new Error(`There is no plan "${name}".`);
  return { name, ...plan };
}
