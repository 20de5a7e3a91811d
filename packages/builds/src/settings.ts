/** All limits and timeouts of builds (R113). A new one is one line here. Plans are configured separately. */
import {
  byteCount,
  count,
  DAY_MS,
  defaultsOf,
  duration,
  durationSeconds,
  HOUR_MS,
  type SettingOrder,
  type SettingValues,
  YEAR_MS,
} from '@torpor/protocol';
import { DEFAULT_PLAN, PLANS, type PlanChoice } from './plans.ts';
import type { FileLimits } from './runners/generated-files.ts';

export const BUILD_SETTINGS = {
  workers: count(4, 'Builds that one server works on at once.', { max: 256 }),
  leaseMs: duration(15_000, 'How long a worker is believed alive without a sign of life.', { min: 300 }),
  pollMs: duration(5_000, 'How often a worker looks for builds without a notice of the database.', {
    min: 10,
  }),
  stopWithinMs: duration(5_000, 'How long a stop waits for the builds under way.', { min: 0 }),
  attempts: count(3, 'How often a build may be begun in all when its workers die.', { max: 100 }),
  maxWaiting: count(100, 'Builds that may wait in line, of all users together.'),
  staleMs: duration(48 * HOUR_MS, 'A build that waits or works for longer than this fails.', {
    min: 1_000,
    max: YEAR_MS,
  }),
  lifetimeSeconds: durationSeconds(3_600, 'Lifetime of the sandboxes of a build.', { min: 60 }),
  runnerMs: duration(900_000, 'How long the runner may take to write the application.'),
  writeMs: duration(60_000, 'How long writing the files into the sandbox may take.'),
  installMs: duration(300_000, 'How long installing the dependencies may take.'),
  installRetryMs: duration(10_000, 'How long after a network failure the install is tried again.', {
    min: 0,
  }),
  checkMs: duration(120_000, 'How long the checks of the application may take.'),
  liveMs: duration(120_000, 'How long the application may take until it answers below 500.'),
  firstLookMs: duration(50, 'The first gap between two questions whether the application answers.'),
  longestLookMs: duration(3_000, 'The longest gap between two such questions.'),
  resumeAttempts: count(2, 'How often waking a preview is tried.', { max: 100 }),
  resumeGapMs: duration(5_000, 'The gap between two attempts to wake a preview.', { min: 0 }),
  previewCheckMs: duration(10_000, 'How long a check of a preview may take.'),
  maxLogLines: count(50_000, 'Lines of log that are kept of one build.', { max: 10_000_000 }),
  followAfterReadyMs: duration(
    60_000,
    'How long streams of events stay open after ready, for the pause of the preview.',
    { min: 0 },
  ),
  keepFilesMs: duration(30 * DAY_MS, 'How long the files of a build are kept after its end.', {
    min: 1_000,
    max: YEAR_MS,
  }),
  keepLogsMs: duration(7 * DAY_MS, 'How long the logs of a build are kept.', { min: 1_000, max: YEAR_MS }),
  keepBuildsPerProject: count(
    50,
    'Builds of a project whose files and logs are kept; the newest ready one is kept while its preview exists.',
  ),
  retentionEveryMs: duration(60_000, 'How often files and logs that may go are looked for.', { min: 10 }),
  retentionBatch: count(100, 'Builds that one round of retention looks at.', { max: 10_000 }),
  upkeepMs: duration(5_000, 'How often builds are looked after: stale ones, old logs, leftovers.', {
    min: 10,
  }),
  tidyMs: duration(600_000, 'How long after its end the sandboxes of a failed build are looked for.', {
    max: YEAR_MS,
  }),
  noticeAtLeastEveryMs: duration(
    5_000,
    'Readers of builds look again after this long without a notice of the database.',
    { min: 10 },
  ),
} as const;

/** Limits for the files of a runner. */
export const BUILD_FILE_SETTINGS = {
  count: count(2_000, 'Files that a build may have.'),
  fileBytes: byteCount(5 * 1024 ** 2, 'Size of one file of a build, at most.', { max: 1024 ** 3 }),
  totalBytes: byteCount(20 * 1024 ** 2, 'Size of all files of a build together, at most.', {
    max: 8 * 1024 ** 3,
  }),
} as const;

export type BuildSettings = SettingValues<typeof BUILD_SETTINGS> &
  PlanChoice & { readonly files: FileLimits };

export const DEFAULT_BUILD_SETTINGS: BuildSettings = {
  ...defaultsOf(BUILD_SETTINGS),
  files: defaultsOf(BUILD_FILE_SETTINGS),
  plans: PLANS,
  defaultPlan: DEFAULT_PLAN,
  planOfUser: {},
};

export const BUILD_SETTING_ORDER: readonly SettingOrder<typeof BUILD_SETTINGS>[] = [
  ['firstLookMs', '<=', 'longestLookMs'],
  ['longestLookMs', '<=', 'liveMs'],
  ['liveMs', '<=', 'staleMs'],
  ['runnerMs', '<=', 'staleMs'],
];

export const BUILD_FILE_SETTING_ORDER: readonly SettingOrder<typeof BUILD_FILE_SETTINGS>[] = [
  ['fileBytes', '<=', 'totalBytes'],
];
