/**
 * Follows the ledger. After a broken connection the stream is resumed behind the last event that arrived, so that a
 * reader sees every event once and in order, as long as the server can be reached.
 */
import { type EventView, eventViewSchema } from '@torpor/protocol';
import { errorOfAnswer, InternalError } from './errors.ts';
import { withIdleTimeout } from './idle-timeout.ts';
import type { ReadOptions } from './json-calls.ts';
import { backoffMs, budgetOf } from './retry.ts';
import { serverSentEvents } from './server-sent-events.ts';
import type { Transport } from './transport.ts';
import { isTransportFault } from './transport-fault.ts';
import { answeredBy, checked } from './validate.ts';

export interface FollowOptions extends ReadOptions {
  /** The number of the last event that the reader has; 0 is before the first. */
  readonly after?: number | undefined;
}

/** `numberOf` is the field that the stream counts by: `seq` for one sandbox, `position` for all. */
export async function* followEvents(
  transport: Transport,
  path: string,
  numberOf: (event: EventView) => number,
  { after = 0, signal, ...options }: FollowOptions,
): AsyncGenerator<EventView, void> {
  const retries = budgetOf(options.retries, transport.retries);
  let last = after;
  /** Connections in a row without any byte, not even a heartbeat. */
  let fruitless = 0;
  for (;;) {
    const response = await transport.ask({
      method: 'GET',
      path,
      headers: { accept: 'text/event-stream', 'last-event-id': String(last) },
      signal,
      retries,
    });
    fruitless++;
    let fault: unknown = new InternalError(
      'The server ends the stream again and again.',
      {},
      answeredBy(response),
    );
    try {
      for await (const event of eventsIn(response, transport.silenceMs, () => (fruitless = 0))) {
        const number = numberOf(event);
        if (number <= last) continue;
        last = number;
        yield event;
      }
    } catch (thrown) {
      if (signal?.aborted || !isTransportFault(thrown)) throw thrown;
      fault = thrown;
    }
    if (fruitless > retries) throw fault;
    await transport.pace.sleep(backoffMs(fruitless + 1, transport.pace.random, transport.backoff), signal);
  }
}

async function* eventsIn(
  response: Response,
  silenceMs: number,
  onBytes: () => void,
): AsyncGenerator<EventView> {
  if (response.body === null) return;
  const about = answeredBy(response);
  for await (const { event, data } of serverSentEvents(withIdleTimeout(response.body, silenceMs), onBytes)) {
    if (event === 'error') throw errorOfAnswer(about.status, about.requestId, { error: JSON.parse(data) });
    yield checked(data, eventViewSchema, about);
  }
}
