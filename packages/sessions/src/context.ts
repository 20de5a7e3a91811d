/** The dependencies that every part of the sessions package shares. */
import type { Clock, Database, Engine, Ids, Report } from '@torpor/engine';
import type { SessionSettings } from './settings.ts';
import type { TurnPort } from './turn-port.ts';

/** Named places between two effects, where a crash campaign kills the server. */
export const SESSION_POINTS = ['planned', 'spawned', 'bound', 'claimed', 'delivered', 'written'] as const;
export type SessionPoint = `session.${(typeof SESSION_POINTS)[number]}`;

export interface Context {
  readonly engine: Engine;
  readonly db: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly turnPort: TurnPort;
  readonly settings: SessionSettings;
  readonly serverId: string;
  /** No other server can use this database. */
  readonly alone: boolean;
  readonly report: Report;
  /** Called between two effects; does nothing outside of a campaign. */
  readonly atFaultPoint: (point: SessionPoint) => Promise<void> | void;
  /** Fires when the server stops; the next start continues what is under way. */
  readonly stopping: AbortSignal;
}

/** The channel that is notified of new output and of changes of turns and sessions. */
export const CHANNEL = 'sessions';
