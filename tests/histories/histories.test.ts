import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { runHistories } from './histories.ts';

/** Operations, faults, accidents, crashes with restart; on PostgreSQL two servers. See play.ts for what must hold. */
describe.each(databaseKinds)('random histories on %s', (kind) => {
  it('end with every operation ended, nothing leaked and nothing lost (R85-R89, R98, R108, R111, R112)', async () => {
    // The same ones every time: new ones are for the campaign, which says how to repeat what it finds.
    await runHistories(kind, kind === 'sqlite' ? 660 : 40, 1_701);
  }, 300_000);
});
