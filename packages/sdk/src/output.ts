/** The output of a process that somebody else started. */
import { errorInside } from './errors.ts';
import type { JsonCalls, ReadOptions } from './json-calls.ts';
import { serverSentEvents } from './server-sent-events.ts';
import { answeredBy } from './validate.ts';

export interface OutputOptions extends ReadOptions {
  /** Go on with what it says next, until it ends. */
  readonly follow?: boolean | undefined;
}

export type OutputEvent =
  | { readonly type: 'start'; readonly pid: number }
  | { readonly type: 'stdout' | 'stderr'; readonly data: string }
  | { readonly type: 'end'; readonly exitCode: number; readonly signal: string | null };

const KNOWN: ReadonlySet<string> = new Set(['start', 'stdout', 'stderr', 'end']);

export async function* readOutput(
  { transport }: JsonCalls,
  path: string,
  { follow = false, ...options }: OutputOptions,
): AsyncGenerator<OutputEvent, void> {
  const headers = { accept: 'text/event-stream' };
  const response = await transport.ask({ method: 'GET', path, query: { follow }, headers, ...options });
  if (response.body === null) return;
  for await (const { event, data } of serverSentEvents(response.body)) {
    if (event === 'error') throw errorInside(answeredBy(response).requestId, { error: JSON.parse(data) });
    if (KNOWN.has(event)) yield { type: event, ...JSON.parse(data) } as OutputEvent;
  }
}
