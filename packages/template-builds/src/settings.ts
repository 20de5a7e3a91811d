/** Every limit of template builds. A new setting is one line here. */
import {
  byteCount,
  count,
  DAY_MS,
  defaultsOf,
  duration,
  HOUR_MS,
  type SettingOrder,
  type SettingValues,
  YEAR_MS,
} from '@torpor/protocol';

export const TEMPLATE_BUILD_SETTINGS = {
  atOnce: count(2, 'Template builds that run at once; further ones wait.', { max: 1_000 }),
  perOrg: count(20, 'Template builds of one organisation that may run, or wait for others.', { max: 10_000 }),
  waitingPerOrg: count(200, 'Template builds of one organisation that their clients have not started yet.', {
    max: 10_000,
  }),
  buildMs: duration(HOUR_MS, 'How long a template build may take.', { max: 7 * DAY_MS }),
  readyMs: duration(
    10 * 60_000,
    'How long the ready command of a template build may fail after the start command began.',
  ),
  readyEveryMs: duration(500, 'How long after a failed ready command the next one runs.', { min: 10 }),
  waitingMs: duration(
    2 * HOUR_MS,
    'A template build that its client has not started for this long is given up.',
    {
      max: YEAR_MS,
    },
  ),
  keepMs: duration(30 * DAY_MS, 'How long a finished template build and its log are kept.', { max: YEAR_MS }),
  maxLogLines: count(10_000, 'Lines of the log of one template build; further ones are dropped.'),
  upkeepMs: duration(60_000, 'How often template builds of dead servers and expired files are looked for.', {
    min: 10,
  }),
  linkMs: duration(HOUR_MS, 'How long a link to upload files for a template build can be used.', {
    max: DAY_MS,
  }),
  fileBytes: byteCount(2 * 1024 ** 3, 'Maximum size of one upload for a template build, unpacked too.'),
  fileTotalBytes: byteCount(
    10 * 1024 ** 3,
    'Maximum size of all uploads for template builds of one organisation, unpacked.',
  ),
  fileKeepMs: duration(7 * DAY_MS, 'Uploads that no template build has used for this long are removed.', {
    max: YEAR_MS,
  }),
} as const;

export type TemplateBuildSettings = SettingValues<typeof TEMPLATE_BUILD_SETTINGS>;
export const DEFAULT_TEMPLATE_BUILD_SETTINGS: TemplateBuildSettings = defaultsOf(TEMPLATE_BUILD_SETTINGS);

export const TEMPLATE_BUILD_SETTING_ORDER: readonly SettingOrder<typeof TEMPLATE_BUILD_SETTINGS>[] = [
  ['readyEveryMs', '<', 'readyMs'],
  ['readyMs', '<=', 'buildMs'],
  ['linkMs', '<=', 'waitingMs'],
  ['waitingMs', '<=', 'fileKeepMs'],
  ['fileBytes', '<=', 'fileTotalBytes'],
];
