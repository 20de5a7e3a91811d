/** Every limit and budget of sessions (R113). A new setting is one line here. */
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

export const SESSION_SETTINGS = {
  spawnMs: duration(120_000, 'How long resuming, replacing and binding a sandbox may take in total.'),
  deliverMs: duration(30_000, 'How long the delivery of a turn to the agent of a sandbox may take.'),
  firstRetryMs: duration(
    1_000,
    'How long after the first failed delivery a turn is tried again; the time doubles with each failure.',
  ),
  longestRetryMs: duration(60_000, 'The longest time between two attempts to deliver a turn.'),
  giveUpMs: duration(DAY_MS, 'A turn that could not be delivered for this long fails.', {
    max: YEAR_MS,
  }),
  deliverEveryMs: duration(1_000, 'How often the server checks for turns that are due.', { min: 10 }),
  healEveryMs: duration(5_000, 'How often the server checks for sessions whose sandbox has ended.', {
    min: 10,
  }),
  healedAtOnce: count(100, 'Sessions that one round of the session reconciler reads.', { max: 10_000 }),
  sleepersAtOnce: count(50, 'Paused sandboxes that one round of the session reconciler inspects.', {
    max: 10_000,
  }),
  sleepersRestMs: duration(
    3_600_000,
    'How long the session reconciler waits after it has inspected every paused sandbox.',
    { min: 0 },
  ),
  hands: count(
    8,
    'Sessions whose turns are delivered at once, in addition to those that a caller asked for.',
    { max: 256 },
  ),
  historyTurns: count(200, 'Turns of history that a program gets when its own history is lost.', {
    min: 0,
    max: 100_000,
  }),
  historyBytes: byteCount(256 * 1024, 'The size limit of that history.', { min: 0, max: 64 * 1024 ** 2 }),
  maxOutputBytes: byteCount(8 * 1024 ** 2, 'Bytes of output that are stored of one turn.', {
    max: 1024 ** 3,
  }),
  wakesKept: count(1_000, 'Wakes of a session that are kept; the oldest are deleted first.'),
  lookAgainMs: duration(
    100,
    'How long the server waits before it reads a sandbox again on which an operation is under way.',
  ),
  noticeAtLeastEveryMs: duration(
    2_000,
    'Readers of turns read again after this long without a notification of the database.',
    { min: 10 },
  ),
} as const;

export type SessionSettings = SettingValues<typeof SESSION_SETTINGS>;
export const DEFAULT_SESSION_SETTINGS: SessionSettings = defaultsOf(SESSION_SETTINGS);

export const SESSION_SETTING_ORDER: readonly SettingOrder<typeof SESSION_SETTINGS>[] = [
  ['firstRetryMs', '<=', 'longestRetryMs'],
  ['longestRetryMs', '<=', 'giveUpMs'],
];
