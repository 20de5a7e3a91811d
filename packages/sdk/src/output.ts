/** Reads the output of a service or background process. */
import { OUTPUT_EVENT_DATA } from '@torpor/protocol';
import { errorInside } from './errors.ts';
import type { JsonCalls, ReadOptions } from './json-calls.ts';
import { serverSentEvents } from './server-sent-events.ts';
import { answeredBy, checked, type Schema } from './validate.ts';

export interface OutputOptions extends ReadOptions {
  /** Continues with new output until the process ends. */
  readonly follow?: boolean | undefined;
}

export type OutputEvent =
  | { readonly type: 'start'; readonly pid: number }
  | { readonly type: 'stdout' | 'stderr'; readonly data: string }
  | { readonly type: 'end'; readonly exitCode: number; readonly signal: string | null };

const SCHEMAS: ReadonlyMap<string, Schema<object>> = new Map(Object.entries(OUTPUT_EVENT_DATA));

export async function* readOutput(
  { transport }: JsonCalls,
  path: string,
  { follow = false, ...options }: OutputOptions,
): AsyncGenerator<OutputEvent, void> {
  const headers = { accept: 'text/event-stream' };
  const response = await transport.ask({ method: 'GET', path, query: { follow }, headers, ...options });
  if (response.body === null) return;
  const about = answeredBy(response);
  for await (const { event, data } of serverSentEvents(response.body)) {
    if (event === 'error') throw errorInside(about.requestId, { error: JSON.parse(data) });
    const schema = SCHEMAS.get(event);
    if (schema !== undefined) yield { type: event, ...checked(data, schema, about) } as OutputEvent;
  }
}
