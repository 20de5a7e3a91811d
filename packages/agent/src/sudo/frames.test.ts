import { describe, expect, it } from 'vitest';
import { FrameReader, frame } from './frames.ts';

describe('frames', () => {
  it('arrive as they were sent, in pieces of any size', () => {
    const sent = Buffer.concat([
      frame('request', '{}'),
      frame('inputEnd'),
      frame('stdout', Buffer.from([0, 255])),
    ]);
    for (const size of [1, 3, 7, sent.length]) {
      const reader = new FrameReader();
      const got = [];
      for (let at = 0; at < sent.length; at += size) got.push(...reader.push(sent.subarray(at, at + size)));
      expect(got.map(({ kind, bytes }) => [kind, bytes.toString('hex')])).toEqual([
        ['request', '7b7d'],
        ['inputEnd', ''],
        ['stdout', '00ff'],
      ]);
    }
  });

  it.each([
    ['a kind that there is not', Buffer.from([99, 0, 0, 0, 0])],
    ['a length beyond the limit', Buffer.from([0, 255, 255, 255, 255])],
  ])('are refused with %s', (_, bytes) => {
    expect(() => [...new FrameReader().push(bytes)]).toThrow('not a frame');
  });
});
