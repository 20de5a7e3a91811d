/** Every bound and budget of the sessions, in milliseconds where it is a time. */
export interface SessionSettings {
  /** For waking, replacing and binding, as a whole. */
  readonly spawnMs: number;
  /** For handing a turn to the agent of a sandbox. */
  readonly deliverMs: number;
  /** How soon a turn that could not be delivered is tried again, at first and at most. */
  readonly firstRetryMs: number;
  readonly longestRetryMs: number;
  /** A turn that could not be delivered for this long has failed. */
  readonly giveUpMs: number;
  readonly deliverEveryMs: number;
  readonly healEveryMs: number;
  /** How many rows a round of healing looks at, of each kind. */
  readonly healedAtOnce: number;
  /** How many sleeping sandboxes of sessions it looks at, and how long it rests when it has seen all. */
  readonly sleepersAtOnce: number;
  readonly sleepersRestMs: number;
  /** Sessions that are worked on at once, beside those that somebody asked for. */
  readonly hands: number;
  /** Of the history that a program is handed when its own is gone. */
  readonly historyTurns: number;
  readonly historyBytes: number;
  /** Of one turn; what the program says beyond that is not stored. */
  readonly maxOutputBytes: number;
  /** How many wakes of a session are remembered; the oldest are forgotten first. */
  readonly wakesKept: number;
  readonly lookAgainMs: number;
  readonly noticeAtLeastEveryMs: number;
}

export const DEFAULT_SESSION_SETTINGS: SessionSettings = {
  spawnMs: 120_000,
  deliverMs: 30_000,
  firstRetryMs: 1_000,
  longestRetryMs: 60_000,
  giveUpMs: 24 * 3_600_000,
  deliverEveryMs: 1_000,
  healEveryMs: 5_000,
  healedAtOnce: 100,
  sleepersAtOnce: 50,
  sleepersRestMs: 3_600_000,
  hands: 8,
  historyTurns: 200,
  historyBytes: 256 * 1024,
  maxOutputBytes: 8 * 1024 * 1024,
  wakesKept: 1_000,
  lookAgainMs: 100,
  noticeAtLeastEveryMs: 2_000,
};
