/** The answer to a turn as it comes. A broken connection is taken up where it broke off, until the turn has ended. */
import { type TurnView, turnViewSchema } from '@torpor/protocol';
import { errorInside, InternalError } from './errors.ts';
import type { ReadOptions } from './json-calls.ts';
import { restless } from './restless.ts';
import { backoffMs, budgetOf } from './retry.ts';
import { type ServerSentEvent, serverSentEvents } from './server-sent-events.ts';
import type { Transport } from './transport.ts';
import { isTransportFault } from './transport-fault.ts';
import { answeredBy, checked } from './validate.ts';

export type TurnEvent =
  | { readonly type: 'stdout' | 'stderr'; readonly data: string }
  /** Its state has changed, or what is in its way; the last of these has `endedAt`. */
  | { readonly type: 'turn'; readonly turn: TurnView };

export async function* followTurn(
  transport: Transport,
  path: string,
  { signal, ...options }: ReadOptions,
): AsyncGenerator<TurnEvent, void> {
  const retries = budgetOf(options.retries, transport.retries);
  let last: string | undefined;
  /** Connections in a row on which nothing arrived. */
  let fruitless = 0;
  for (;;) {
    const headers = { accept: 'text/event-stream', ...(last === undefined ? {} : { 'last-event-id': last }) };
    const response = await transport.ask({ method: 'GET', path, headers, signal, retries });
    const about = answeredBy(response);
    fruitless++;
    let fault: unknown = new InternalError('The server ends the stream each time.', {}, about);
    try {
      for await (const { id, event, data } of eventsOf(response, transport, () => (fruitless = 0))) {
        if (event === 'error') throw errorInside(about.requestId, { error: JSON.parse(data) });
        if (event === 'stdout' || event === 'stderr') {
          yield { type: event, data: (JSON.parse(data) as { data: string }).data };
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
  return body === null ? [] : serverSentEvents(restless(body, silenceMs), onBytes);
}
