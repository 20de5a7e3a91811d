/** What passes through a door: a request, or a socket that a request became. */
import type { TorporError } from '@torpor/protocol';
import type { Connection } from '../upstream/connection.ts';

export interface Exchange {
  /** What it keeps in memory while it is held. */
  readonly heldBytes: number;
  /** Whether it is use of the sandbox: it may wake it, and holds it awake. */
  readonly countsAsUse: boolean;
  /** Its turn has come: it sends its request at once, before anybody else does anything. */
  begin(connection: Connection): void;
  /** It will not be passed on, and nothing in the sandbox has seen it. */
  refuse(error: TorporError): void;
}

/** A passage that has begun, as a pause sees it. */
export interface ActiveExchange {
  /** Whether a pause need not wait for it: it has its answer, and nothing has moved for a while. */
  isQuiet(now: number): boolean;
  /** Asks it to come to an end by itself, if it is of the kind that can. */
  askToEnd(): void;
  /** Ends it. Whatever has not been answered is answered that it was dispatched. */
  cut(): void;
}
