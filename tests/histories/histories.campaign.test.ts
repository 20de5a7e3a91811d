import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { runHistories } from './histories.ts';

/** `npm run test:histories`: TORPOR_HISTORIES histories in total, a twentieth of them on PostgreSQL. */
const total = Number(process.env['TORPOR_HISTORIES'] ?? 100_000);

describe.each(databaseKinds)('many random histories on %s', (kind) => {
  it('keep all invariants', { timeout: 0 }, async () => {
    const count = kind === 'sqlite' ? Math.ceil(total * 0.95) : Math.floor(total * 0.05);
    const progress = (played: number) => {
      if (played % 1_000 === 0) console.log(`${played} of ${count} on ${kind}`);
    };
    await runHistories(kind, count, undefined, progress).catch((thrown: unknown) => {
      // Printed at once: the report appears only after the other database is done, perhaps an hour later.
      console.error(thrown);
      throw thrown;
    });
  });
});
