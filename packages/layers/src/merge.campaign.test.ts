import { describe, it } from 'vitest';
import { REFUSAL } from '../testing/layer-world.ts';
import { checkMerges } from '../testing/merge-property.ts';

describe('merging layers, at length', () => {
  it('shows the same files as the stack, and behaves the same', async ({ skip }) => {
    skip(REFUSAL !== undefined, REFUSAL);
    await checkMerges({ numRuns: 1000 });
  });
});
