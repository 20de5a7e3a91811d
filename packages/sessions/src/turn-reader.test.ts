import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TurnReader } from './turn-reader.ts';

const TURN = 'turn_aaaaaaaaaaaaaaaaaaaa';
const END = `{"torpor":{"end":"${TURN}"}}\n`;

function readAll(text: string, sizes: readonly number[]) {
  const bytes = Buffer.from(text);
  const reader = new TurnReader(TURN);
  let said = '';
  let thread: string | null = null;
  let ended = false;
  let position = 0;
  for (let at = 0, i = 0; at < bytes.length && !ended; i++) {
    const size = sizes.length === 0 ? bytes.length : (sizes[i % sizes.length] ?? 1);
    const step = reader.read('stdout', at, bytes.subarray(at, at + size));
    said += step.chunks.map((chunk) => chunk.text).join('');
    thread = step.thread ?? thread;
    ended = step.ended;
    expect(step.position).toBeGreaterThanOrEqual(position);
    position = step.position;
    at += size;
  }
  if (!ended)
    said += reader
      .release()
      .map(({ text: rest }) => rest)
      .join('');
  return { said, thread, ended };
}

describe('reading the output of a program', () => {
  it('returns the answer, reads the thread and ends with the turn', () => {
    const text = `one\n{"torpor":{"thread":"t-1"}}\ntwo\n${END}not any more\n`;
    expect(readAll(text, [])).toEqual({ said: 'one\ntwo\n', thread: 't-1', ended: true });
  });

  it('leaves lines alone that only look like control messages', () => {
    const text = `{"torpor":1}\nx {"torpor":{"end":"${TURN}"}}\n{"torpor":nonsense\n{"torpor`;
    expect(readAll(text, [])).toMatchObject({ said: text, ended: false });
  });

  it('is not ended by the end of another turn', () => {
    expect(readAll('a\n{"torpor":{"end":"turn_bbbbbbbbbbbbbbbbbbbb"}}\nb\n', [])).toEqual({
      said: 'a\nb\n',
      thread: null,
      ended: false,
    });
  });

  it('gives the same result however the bytes are split', () => {
    const line = fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 20 }),
      fc.constantFrom('{"torpor":{"thread":"t"}}', '{"torpor":{}}', '{"torpor"', 'ünï', '{'),
    );
    fc.assert(
      fc.property(
        fc.array(line),
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
        (lines, sizes) => {
          const text = `${lines.join('\n')}\n${END}`;
          expect(readAll(text, sizes)).toEqual(readAll(text, []));
        },
      ),
    );
  });
});
