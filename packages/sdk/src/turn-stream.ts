/** Follows the output of a turn until the turn has ended. A broken connection is resumed where it broke. */
import { OUTPUT_EVENT_DATA, type TurnView, turnViewSchema } from '@torpor/protocol';
import { errorInside, InternalError } from './errors.ts';
import { withIdleTimeout } from './idle-timeout.ts';
import type { ReadOptions } from './json-calls.ts';
import { backoffMs, budgetOf } from './retry.ts';
import { type ServerSentEvent, serverSentEvents } from './server-sent-events.ts';
import type { Transport } from './transport.ts';
import { isTransportFault } from './transport-fault.ts';
import { answeredBy, checked } from './validate.ts';

export type TurnEvent =
  | { readonly type: 'stdout' | 'stderr'; readonly data: string }
  /** The state of the turn, or the reason for its delay, has changed; the last of these events has `endedAt`. */
  | { readonly type: 'turn'; readonly turn: TurnView };

export async function* followTurn(
  transport: Transport,
  path: string,
  { signal, ...options }: ReadOptions,
): AsyncGenerator<TurnEvent, void> {
  const retries = budgetOf(options.retries, transport.retries);
  let last: string | undefined;
  /** Connections in a row without any byte. */
  let fruitless = 0;
  for (;;) {
    const headers = { accept: 'text/event-stream', ...(last === undefined ? {} : { 'last-event-id': last }) };
    const response = await transport.ask({ method: 'GET', path, headers, signal, retries });
    const about = answeredBy(response);
    fruitless++;
    let fault: unknown = new InternalError('The server ends the stream again and again.', {}, about);
    try {
      for await (const { id, event, data } of eventsOf(response, transport, () => (fruitless = 0))) {
        if (event === 'error') throw errorInside(about.requestId, { error: JSON.parse(data) });
        if (event === 'stdout' || event === 'stderr') {
          yield { type: event, data: checked(data, OUTPUT_EVENT_DATA[event], about).data };
          last = id ?? last;
        }
        if (event !== 'turn') continue;
        const turn = checked(data, turnViewSchema, about);
        yield { type: 'turn', turn };
        if (turn.endedAt !== null) return;
      }
    } catch (thrown) {
      if (signal?.aborted || !isTransportFault(thrown)) throw thrown;
      fault = thrown;
    }
    if (fruitless > retries) throw fault;
    await transport.pace.sleep(backoffMs(fruitless + 1, transport.pace.random, transport.backoff), signal);
  }
}

function eventsOf(
  { body }: Response,
  { silenceMs }: Transport,
  onBytes: () => void,
): AsyncIterable<ServerSentEvent> | ServerSentEvent[] {
  return body === null ? [] : serverSentEvents(withIdleTimeout(body, silenceMs), onBytes);
}
