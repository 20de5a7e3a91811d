/**
 * Reads a `text/event-stream` as it arrives. Written by hand because the SDK supports Node 20.3, and the maintained
 * `eventsource-parser` (4.x) needs Node 22.12.
 */

export interface ServerSentEvent {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: string;
}

/**
 * Every complete event of the stream. An incomplete event at the end is dropped, as the format demands. `onBytes` is
 * called for each arrival of bytes, comments included: the server sends comments as heartbeats.
 */
export async function* serverSentEvents(
  body: ReadableStream<Uint8Array>,
  onBytes: () => void = () => {},
): AsyncGenerator<ServerSentEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let fields: Field[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes();
      rest += decoder.decode(value, { stream: true });
      // A carriage return at the very end may be the first half of a CRLF.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (line !== '') fields.push(fieldOf(line));
        else {
          const event = eventOf(fields);
          fields = [];
          if (event !== undefined) yield event;
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

type Field = readonly [name: string, value: string];

function fieldOf(line: string): Field {
  const colon = line.indexOf(':');
  if (colon < 0) return [line, ''];
  return [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')];
}

function eventOf(fields: readonly Field[]): ServerSentEvent | undefined {
  const all = (name: string) => fields.flatMap(([key, value]) => (key === name ? [value] : []));
  const data = all('data');
  if (data.length === 0) return undefined;
  return { id: all('id').at(-1), event: all('event').at(-1) ?? 'message', data: data.join('\n') };
}
