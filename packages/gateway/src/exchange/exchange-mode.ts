/** The modes of a request exchange. Events that the table does not list are ignored. */

export type ExchangeMode =
  /** In the admission queue, or about to enter it. No app has seen the request. */
  | 'queued'
  /** The request's head was written to the app. No response head has come. */
  | 'sent'
  /** The response head is known. It waits, with a small first piece of the body, to be sent in one system call. */
  | 'head_buffered'
  /** The response head is on its way to the client, and the body follows. */
  | 'streaming'
  /** The whole response was passed on, and the client still sends its request. */
  | 'lingering'
  | 'over';

export type ExchangeEvent =
  /** The gate has given the exchange a connection. */
  | 'dispatched'
  /** The reused connection was dead before it carried the request. */
  | 'requeued'
  /** The gate has refused the request, or the client has given up its place in the queue. */
  | 'left_queue'
  /** The head of the final response has come, or the app has switched protocols. */
  | 'response_began'
  | 'flushed'
  | 'response_ended'
  /** Request and response are over, or one side has failed. */
  | 'finished';

export const EXCHANGE_TRANSITIONS: Readonly<
  Record<ExchangeMode, Readonly<Partial<Record<ExchangeEvent, ExchangeMode>>>>
> = {
  queued: { dispatched: 'sent', left_queue: 'over' },
  sent: { requeued: 'queued', response_began: 'head_buffered', finished: 'over' },
  head_buffered: { flushed: 'streaming', response_ended: 'lingering', finished: 'over' },
  streaming: { response_ended: 'lingering', finished: 'over' },
  lingering: { finished: 'over' },
  over: {},
};
