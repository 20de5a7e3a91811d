import type { Quotas } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { quotaChangeOf, quotaDraftOf, quotaTitle } from './quota-draft.ts';

const quotas: Quotas = {
  runningSandboxes: 10,
  sandboxes: null,
  memoryMb: 4_096,
  diskMb: null,
  runningBuilds: null,
  queuedBuilds: 3,
};

describe('the form of quotas', () => {
  it('sends only what was changed; an empty field removes the quota', () => {
    const draft = quotaDraftOf(quotas);
    expect(quotaChangeOf(draft, quotas)).toEqual({});
    expect(quotaChangeOf({ ...draft, memoryMb: ' ', sandboxes: '20', queuedBuilds: '3' }, quotas)).toEqual({
      memoryMb: null,
      sandboxes: 20,
    });
  });

  it('has titles for people', () => {
    expect([quotaTitle('runningSandboxes'), quotaTitle('memoryMb')]).toEqual([
      'running sandboxes',
      'memory MB',
    ]);
  });
});
