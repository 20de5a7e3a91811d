import { describe, it } from 'vitest';
import { REFUSAL } from '../testing/layer-world.ts';
import { checkMerges } from '../testing/merge-property.ts';

describe('merging layers, at length', () => {
  it('shows what the stack showed, and goes on in the same way', async ({ skip }) => {
    skip(REFUSAL !== undefined, REFUSAL);
    await checkMerges({ numRuns: 1000 });
  });
});
