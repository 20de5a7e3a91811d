import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { inSlices } from './in-slices.ts';

const bytes = randomBytes(1024 ** 2 + 3);

it('gives way before each slice of a body, and passes every byte on', async () => {
  let asked = 0;
  const sent = await Array.fromAsync(
    inSlices(bytes, async () => {
      asked++;
    }),
  );
  expect(Buffer.concat(sent).equals(bytes)).toBe(true);
  expect(asked).toBe(5);
});

it('goes on when the upload is aborted: the request ends by itself', async () => {
  const sent = await Array.fromAsync(inSlices(bytes, () => Promise.reject(new Error('Aborted.'))));
  expect(Buffer.concat(sent)).toHaveLength(bytes.length);
});
