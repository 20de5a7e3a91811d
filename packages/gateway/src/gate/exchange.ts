/** What passes through a gate: one request, or the tunnel that it became. And the gate, as an exchange sees it. */
import type { TorporError } from '@torpor/protocol';
import type { GatewaySettings } from '../settings.ts';
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

/** Where exchanges get their connections: the gate of a sandbox, or the connections to another node. */
export interface ExchangeGate {
  readonly settings: Pick<GatewaySettings, 'drainQuietMs' | 'goodbyeMs'>;
  /** Whether the other side ends connections on purpose, so that a broken one is no fault of the app. */
  readonly isClosed: boolean;
  /** Whether the server stops: client connections are not kept alive. */
  readonly isStopping: boolean;
  /** Dispatches the exchange at once, or when a connection is free. */
  submit(port: number, exchange: Exchange): void;
  /** For a request whose connection was dead before the request arrived. */
  resubmit(port: number, exchange: Exchange): void;
  /** Takes the exchange out of its queue. False when it is in none. */
  withdraw(port: number, exchange: Exchange): boolean;
  exchangeStarted(exchange: ActiveExchange): void;
  exchangeEnded(exchange: ActiveExchange): void;
  /** An active exchange may have become quiet. */
  exchangeChanged(): void;
  bytesMoved(): void;
  /** An active exchange begins to wait for its response, or (-1) stops waiting. */
  awaitingResponse(change: 1 | -1): void;
  /** The error of an exchange that is ended from here before it had a response. */
  cutError(): TorporError;
  /** The error of an exchange whose connection broke, or whose response is not HTTP. */
  brokenError(port: number, cause: unknown): TorporError;
}
