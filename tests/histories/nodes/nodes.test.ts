import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { runNodeHistories } from './node-histories.ts';

/** Machines that die, are cut off, fenced, drained, forgotten and come back. node-player.ts has the invariants. */
describe.runIf(databaseKinds.includes('postgres'))('random histories of three nodes', () => {
  it('never run a sandbox twice, and lose nothing that is replicated', async () => {
    // A fixed seed: the campaign plays new histories and prints how to repeat a failure.
    await runNodeHistories(4, 1_701);
  }, 300_000);
});
