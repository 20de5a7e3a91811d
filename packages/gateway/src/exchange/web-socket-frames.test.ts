import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameCursor } from './web-socket-frames.ts';

function frame(size: number, isMasked: boolean): Buffer {
  const mask = isMasked ? 0x80 : 0;
  const length =
    size < 126
      ? Buffer.from([mask | size])
      : size < 65_536
        ? Buffer.from([mask | 126, size >> 8, size & 0xff])
        : Buffer.concat([
            Buffer.from([mask | 127]),
            Buffer.from(BigInt(size).toString(16).padStart(16, '0'), 'hex'),
          ]);
  return Buffer.concat([
    Buffer.from([0x82]),
    length,
    Buffer.alloc(isMasked ? 4 : 0, 7),
    Buffer.alloc(size, 0x81),
  ]);
}

describe('a frame cursor', () => {
  it('finds every frame boundary, however the bytes are split', () => {
    const size = fc.oneof(fc.nat({ max: 140 }), fc.constantFrom(125, 126, 65_535, 65_536));
    fc.assert(
      fc.property(
        fc.array(fc.tuple(size, fc.boolean()), { minLength: 1, maxLength: 5 }),
        fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 10 }),
        (frames, cuts) => {
          const wires = frames.map(([length, isMasked]) => frame(length, isMasked));
          const wire = Buffer.concat(wires);
          const ends = wires.map((_, i) => Buffer.concat(wires.slice(0, i + 1)).length);
          const places = [...new Set(cuts.map((cut) => Math.floor(cut * wire.length)))].sort((a, b) => a - b);
          const cursor = new FrameCursor();
          let at = 0;
          for (const place of [...places, wire.length]) {
            cursor.follow(wire.subarray(at, place), false);
            at = place;
            expect(cursor.isBetweenFrames).toBe(at === 0 || ends.includes(at));
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it('stops at the first frame boundary when asked to', () => {
    const cursor = new FrameCursor();
    cursor.follow(frame(10, false).subarray(0, 5), false);
    expect(cursor.follow(Buffer.concat([frame(10, false).subarray(5), frame(3, false)]), true)).toBe(7);
    expect(cursor.isBetweenFrames).toBe(true);
  });
});
