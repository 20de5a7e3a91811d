import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { runHistories } from './histories.ts';

/** Operations, faults, accidents, and crashes with restarts. PostgreSQL has two servers. play.ts has the invariants. */
describe.each(databaseKinds)('random histories on %s', (kind) => {
  it('end with every operation ended, nothing leaked and nothing lost (R85-R89, R98, R108, R111, R112)', async () => {
    // A fixed seed: the campaign plays new histories and prints how to repeat a failure.
    await runHistories(kind, kind === 'sqlite' ? 400 : 25, 1_701);
  }, 300_000);
});
