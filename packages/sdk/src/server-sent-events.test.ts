import { describe, expect, it } from 'vitest';
import { type ServerSentEvent, serverSentEvents } from './server-sent-events.ts';

async function readAll(chunks: readonly Uint8Array[]): Promise<ServerSentEvent[]> {
  const events: ServerSentEvent[] = [];
  for await (const event of serverSentEvents(ReadableStream.from(chunks))) events.push(event);
  return events;
}

const TEXT = [
  ': a comment\n\n',
  'id: 1\nevent: created\ndata: {"name":"späte Blüte"}\n\n',
  'data: two\r\ndata:  lines\r\n\r\n',
  'id\nretry: 10\n\n',
  'id: 2\rdata\r\r',
  'data: half',
].join('');

const EXPECTED: ServerSentEvent[] = [
  { id: '1', event: 'created', data: '{"name":"späte Blüte"}' },
  { id: undefined, event: 'message', data: 'two\n lines' },
  { id: '2', event: 'message', data: '' },
];

describe('a stream of events', () => {
  it('is read completely', async () => {
    expect(await readAll([Buffer.from(TEXT)])).toEqual(EXPECTED);
  });

  it('may be split anywhere, also within a character or a line break', async () => {
    const bytes = Buffer.from(TEXT);
    expect(await readAll([...bytes].map((byte) => new Uint8Array([byte])))).toEqual(EXPECTED);
    for (let cut = 0; cut <= bytes.length; cut++) {
      expect(await readAll([bytes.subarray(0, cut), bytes.subarray(cut)])).toEqual(EXPECTED);
    }
  });

  it('is cancelled when the loop is left', async () => {
    let cancelled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(Buffer.from('data: 1\n\n')),
      cancel: () => {
        cancelled = true;
      },
    });
    for await (const _ of serverSentEvents(endless)) break;
    expect(cancelled).toBe(true);
  });
});
