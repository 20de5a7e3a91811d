import { describe, it } from 'vitest';
import { REFUSAL } from '../testing/layer-world.ts';
import { checkMerges } from '../testing/merge-property.ts';

describe('merging layers', () => {
  it('shows what the stack showed, whatever was done in its layers, and goes on in the same way', {
    timeout: 300_000,
  }, async ({ skip }) => {
    skip(REFUSAL !== undefined, REFUSAL);
    // In memory, because every seal waits for whatever else is being written to the disk.
    await checkMerges({ seed: 20, numRuns: 8, endOnFailure: true }, { disk: 'size=64m' });
  });
});
