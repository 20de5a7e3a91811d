import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import * as complaints from './complaints.ts';
import { type E2bServer, e2bServer, optionsOf } from './e2b-server.ts';
import { oppositeWishes } from './opposites.ts';

const noGvisor = await whyNoGvisor();
/** TORPOR_ROUNDS=300 runs 300 rounds. Each has three pairs of conflicting requests. */
const ROUNDS = Number(process.env['TORPOR_ROUNDS'] ?? 100);

describe.skipIf(noGvisor !== null)('through E2B’s package, in gVisor', () => {
  let world: E2bServer;

  beforeAll(async () => {
    world = await e2bServer('http', 'gvisor');
  }, 300_000);
  afterAll(() => world.dispose(), 300_000);

  it('ten cycles keep every change (E2B#884, #736, #582)', () => complaints.manyCycles(optionsOf(world), 10));

  it('an automatic pause keeps the last write, the processes, and automatic pauses on (E2B#1104, #1031, #875, mastra#24621)', () =>
    complaints.automaticPause(optionsOf(world)));

  it('an automatic pause without memory keeps the files (Dormice#74)', () =>
    complaints.automaticPauseWithoutMemory(optionsOf(world)));

  it('a command is found again after three minutes (E2B#1074)', () =>
    complaints.lateReconnect(optionsOf(world), 180_000));

  it(`${ROUNDS} rounds of conflicting requests`, async () => {
    const outcomes = await oppositeWishes(optionsOf(world), ROUNDS);
    console.log(JSON.stringify(outcomes));
    expect(outcomes.rounds).toBe(ROUNDS);
  });
});
