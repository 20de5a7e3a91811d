import { describe, it } from 'vitest';
import { REFUSAL } from '../testing/layer-world.ts';
import { checkMerges } from '../testing/merge-property.ts';

describe('merging layers', () => {
  it('shows the same files as the stack for any changes in its layers, and behaves the same', {
    timeout: 300_000,
  }, async ({ skip }) => {
    skip(REFUSAL !== undefined, REFUSAL);
    // In memory, because every seal waits for whatever else is being written to the disk.
    await checkMerges({ seed: 20, numRuns: 8, endOnFailure: true }, { disk: { tmpfs: 'size=64m' } });
  });
});
