/** What every part of the sessions works with. */
import type { Clock, Database, Engine, Ids, Report } from '@torpor/engine';
import type { SessionSettings } from './settings.ts';
import type { TurnPort } from './turn-port.ts';

/** Named places between two effects, where a crash campaign kills the server for real. */
export const SESSION_POINTS = ['planned', 'spawned', 'bound', 'claimed', 'delivered', 'written'] as const;
export type SessionPoint = `session.${(typeof SESSION_POINTS)[number]}`;

export interface Context {
  readonly engine: Engine;
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly turnPort: TurnPort;
  readonly settings: SessionSettings;
  readonly report: Report;
  /** Passed between effects; outside of a campaign it costs nothing. */
  readonly atFaultPoint: (point: SessionPoint) => Promise<void> | void;
  /** Fires when the server stops; what is under way is taken up at the next start. */
  readonly stopping: AbortSignal;
}

/** On which those who wait for output or for the end of a turn are told to look. */
export const CHANNEL = 'sessions';
