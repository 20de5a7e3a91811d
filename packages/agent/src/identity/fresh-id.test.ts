import { closeSync, openSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freshIds, kernelRandomness } from './fresh-id.ts';

it('an id comes from the given source, not from state that two copies of the process share', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'torpor-ids-'));
  const source = join(directory, 'source');
  writeFileSync(
    source,
    Buffer.from('00112233445566778899aabbccddeeff0f0e0d0c0b0a09080706050403020100', 'hex'),
  );
  const fd = openSync(source, 'r');
  try {
    const newId = freshIds(fd);
    expect([newId(), newId()]).toEqual([
      '00112233-4455-6677-8899-aabbccddeeff',
      '0f0e0d0c-0b0a-0908-0706-050403020100',
    ]);
    // An exhausted source must not give the same id again and again.
    expect(newId()).not.toBe(newId());
  } finally {
    closeSync(fd);
    await rm(directory, { recursive: true });
  }
});

it('an id comes from the kernel, or from Node where the kernel has no generator', () => {
  for (const newId of [freshIds(kernelRandomness()), freshIds(undefined)]) {
    expect(newId()).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    expect(newId()).not.toBe(newId());
  }
});
