/** Every bound and budget of the sessions (R113). A new one is one line here. */
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
  spawnMs: duration(120_000, 'How long waking, replacing and binding a sandbox may take as a whole.'),
  deliverMs: duration(30_000, 'How long handing a turn to the agent of a sandbox may take.'),
  firstRetryMs: duration(1_000, 'How soon a turn that could not be delivered is tried again at first.'),
  longestRetryMs: duration(60_000, 'The longest gap between two attempts to deliver a turn.'),
  giveUpMs: duration(DAY_MS, 'A turn that could not be delivered for this long has failed.', {
    max: YEAR_MS,
  }),
  deliverEveryMs: duration(1_000, 'How often turns that are due are looked for.', { min: 10 }),
  healEveryMs: duration(5_000, 'How often sessions with a dead sandbox are looked for.', { min: 10 }),
  healedAtOnce: count(100, 'Sessions that one round of healing looks at.', { max: 10_000 }),
  sleepersAtOnce: count(50, 'Sleeping sandboxes that one round of healing looks at.', { max: 10_000 }),
  sleepersRestMs: duration(
    3_600_000,
    'How long healing rests once it has looked at every sleeping sandbox.',
    { min: 0 },
  ),
  hands: count(8, 'Sessions that are worked on at once, beside those that somebody asked for.', { max: 256 }),
  historyTurns: count(200, 'Turns of history that a program is handed when its own is gone.', {
    min: 0,
    max: 100_000,
  }),
  historyBytes: byteCount(256 * 1024, 'Bytes of that history, at most.', { min: 0, max: 64 * 1024 ** 2 }),
  maxOutputBytes: byteCount(8 * 1024 ** 2, 'Bytes of output that are stored of one turn.', {
    max: 1024 ** 3,
  }),
  wakesKept: count(1_000, 'Wakes of a session that are remembered; the oldest are forgotten first.'),
  lookAgainMs: duration(100, 'How soon a session that is changing is looked at again.'),
  noticeAtLeastEveryMs: duration(
    2_000,
    'Readers of turns look again after this long without a notice of the database.',
    { min: 10 },
  ),
} as const;

export type SessionSettings = SettingValues<typeof SESSION_SETTINGS>;
export const DEFAULT_SESSION_SETTINGS: SessionSettings = defaultsOf(SESSION_SETTINGS);

export const SESSION_SETTING_ORDER: readonly SettingOrder<typeof SESSION_SETTINGS>[] = [
  ['firstRetryMs', '<=', 'longestRetryMs'],
  ['longestRetryMs', '<=', 'giveUpMs'],
];
