/** What passes through a gate: one request, or the tunnel that it became. */
import type { TorporError } from '@torpor/protocol';
import type { Connection } from '../upstream/connection.ts';

export interface Exchange {
  /** The memory that the exchange keeps while it is queued. */
  readonly queuedBytes: number;
  /** Whether the exchange is use of the sandbox: it may wake the sandbox, and keeps it awake. */
  readonly countsAsUse: boolean;
  /** Dispatches the request. It is written before this returns, so that requests keep their order. */
  dispatch(connection: Connection): void;
  /** The request will not be dispatched. Nothing in the sandbox has seen it. */
  refuse(error: TorporError): void;
}

/** A dispatched exchange, as a pause sees it. */
export interface ActiveExchange {
  /** Whether a pause need not wait: the response has begun, and no byte has moved for a while. */
  isQuiet(now: number): boolean;
  /** Asks the exchange to end by itself, if its protocol can. */
  askToEnd(): void;
  /** Ends the exchange at once. A client without a response is told that its request was dispatched. */
  abort(): void;
}
