import { databaseKinds } from '@torpor/engine/testing';
import { describe, it } from 'vitest';
import { runNodeHistories } from './node-histories.ts';

/**
 * `npm run test:histories`: TORPOR_NODE_HISTORIES histories of three nodes, TORPOR_SEED repeats some. One process uses about one
 * core: to use two, run two processes with half the number each, and without a seed or with different ones.
 */
const total = Number(process.env['TORPOR_NODE_HISTORIES'] ?? 5_000);
const seed = process.env['TORPOR_SEED'];

describe.runIf(databaseKinds.includes('postgres'))('many random histories of three nodes', () => {
  it('never run a sandbox twice, and lose nothing that is replicated', { timeout: 0 }, async () => {
    const progress = (played: number) => console.log(`${played} of ${total}`);
    await runNodeHistories(total, seed === undefined ? undefined : Number(seed), progress);
  });
});
