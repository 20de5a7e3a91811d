import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OutputRing } from './output-ring.ts';

const signal = new AbortController().signal;

function ring(capacity: number) {
  const flow = {
    held: false,
    pause() {
      flow.held = true;
    },
    resume() {
      flow.held = false;
    },
  };
  return { flow, output: new OutputRing(capacity, flow) };
}

async function readAll(reader: ReturnType<OutputRing['attach']>): Promise<string> {
  let text = '';
  for (let chunk = await reader.next(signal); chunk; chunk = await reader.next(signal)) {
    text += Buffer.from(chunk.bytes).toString();
  }
  return text;
}

describe('the output ring', () => {
  it('gives a late reader the kept output, and the number of dropped bytes', async () => {
    const { output } = ring(10);
    for (const text of ['aaaaa', 'bbbbb']) output.append('stdout', Buffer.from(text));
    output.append('stderr', Buffer.from('ccccc'));
    output.finish();
    const reader = output.attach();
    const kept = await readAll(reader);
    expect(kept).toBe('ccccc');
    expect(reader.missedBytes).toBe(10);
  });

  it('keeps the channels separate and in order', async () => {
    const { output } = ring(1000);
    output.append('stdout', Buffer.from('1'));
    output.append('stderr', Buffer.from('2'));
    output.append('stdout', Buffer.from('3'));
    const reader = output.attach();
    const read = async () => {
      const chunk = await reader.next(signal);
      return [chunk?.channel, Buffer.from(chunk?.bytes ?? []).toString()];
    };
    expect([await read(), await read(), await read()]).toEqual([
      ['stdout', '1'],
      ['stderr', '2'],
      ['stdout', '3'],
    ]);
  });

  it('never pauses the process without a reader', () => {
    const { output, flow } = ring(100);
    for (let i = 0; i < 100; i += 1) output.append('stdout', Buffer.alloc(50));
    expect(flow.held).toBe(false);
    expect(output.keptBytes).toBeLessThanOrEqual(100);
  });

  it('pauses the process for a slow reader, and resumes it when the reader has caught up', async () => {
    const { output, flow } = ring(100);
    const reader = output.attach();
    output.append('stdout', Buffer.alloc(40));
    expect(flow.held).toBe(false);
    output.append('stderr', Buffer.alloc(40));
    expect(flow.held).toBe(true);
    await reader.next(signal);
    expect(flow.held).toBe(true);
    await reader.next(signal);
    expect(flow.held).toBe(false);
  });

  it('resumes the process when the slow reader detaches', () => {
    const { output, flow } = ring(100);
    const reader = output.attach();
    output.append('stdout', Buffer.alloc(80));
    expect(flow.held).toBe(true);
    reader.detach();
    expect(flow.held).toBe(false);
  });

  it('loses nothing for an attached reader, even output that arrives after the pause', async () => {
    const { output } = ring(100);
    const reader = output.attach();
    for (let i = 0; i < 5; i += 1) output.append('stdout', Buffer.from('x'.repeat(60)));
    output.finish();
    expect(await readAll(reader)).toHaveLength(300);
  });

  it('does not pause a left-over process after the end', () => {
    const { output, flow } = ring(100);
    output.attach();
    output.append('stdout', Buffer.alloc(80));
    output.finish();
    expect(flow.held).toBe(false);
  });

  it('merges small pieces', async () => {
    const { output } = ring(1000);
    for (const letter of 'abc') output.append('stdout', Buffer.from(letter));
    expect(Buffer.from((await output.attach().next(signal))?.bytes ?? []).toString()).toBe('abc');
  });

  it('wakes a waiting reader on output and on abort', async () => {
    const { output } = ring(1000);
    const stop = new AbortController();
    const reader = output.attach();
    const first = reader.next(stop.signal);
    output.append('stdout', Buffer.from('x'));
    expect((await first)?.bytes).toHaveLength(1);
    const second = reader.next(stop.signal);
    stop.abort(new Error('enough'));
    await expect(second).rejects.toThrow('enough');
  });

  it('gives a reader from the first byte on exactly what was written', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ maxLength: 40 })),
        fc.integer({ min: 1, max: 200 }),
        async (texts, capacity) => {
          const { output } = ring(capacity);
          const readers = [output.attach(), output.attach()];
          for (const text of texts) output.append('stdout', Buffer.from(text));
          output.finish();
          const expected = Buffer.concat(texts.map((text) => Buffer.from(text))).toString('hex');
          for (const reader of readers) {
            const parts: Uint8Array[] = [];
            for (let c = await reader.next(signal); c; c = await reader.next(signal)) parts.push(c.bytes);
            expect(Buffer.concat(parts).toString('hex')).toBe(expected);
          }
        },
      ),
    );
  });
});
