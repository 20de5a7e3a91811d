import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { runHistories } from './histories.ts';

/** The long form, `npm run test:histories`: TORPOR_HISTORIES of them in all, a twentieth of it on PostgreSQL. */
const total = Number(process.env['TORPOR_HISTORIES'] ?? 100_000);

describe.each(databaseKinds)('many random histories on %s', (kind) => {
  it(`hold what must always hold`, { timeout: 0 }, async () => {
    const count = kind === 'sqlite' ? Math.ceil(total * 0.95) : Math.floor(total * 0.05);
    const progress = (played: number) => {
      if (played % 1_000 === 0) console.log(`${played} of ${count} on ${kind}`);
    };
    await runHistories(kind, count, undefined, progress).catch((thrown: unknown) => {
      // At once: the report comes when the other database is done too, which may be in an hour.
      console.error(thrown);
      throw thrown;
    });
  });
});
