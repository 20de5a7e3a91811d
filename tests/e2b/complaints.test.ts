import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import * as complaints from './complaints.ts';
import { type E2bServer, e2bServer, optionsOf } from './e2b-server.ts';
import { oppositeWishes } from './opposites.ts';

const noGvisor = await whyNoGvisor();
const PATIENCE_MS = 300_000;

/** The long forms are in complaints.campaign.test.ts. */
describe.skipIf(noGvisor !== null)('through E2B’s package, in gVisor', { timeout: PATIENCE_MS }, () => {
  let world: E2bServer;

  beforeAll(async () => {
    world = await e2bServer('http', 'gvisor');
  }, PATIENCE_MS);
  afterAll(() => world.dispose(), PATIENCE_MS);

  it('two cycles keep every change (E2B#884, #736, #582)', () => complaints.manyCycles(optionsOf(world), 2));

  it('a command is found again by its pid (E2B#1074)', () => complaints.lateReconnect(optionsOf(world), 100));

  it('files of unknown size are downloaded completely (infra#3363)', () =>
    complaints.filesWithoutSize(optionsOf(world)));

  it('two clients with conflicting requests both get allowed answers', async () => {
    expect(await oppositeWishes(optionsOf(world), 1)).toMatchObject({ rounds: 1 });
  });

  it('the list of sandboxes survives a killed server (infra#2041), and so does a sandbox (E2B#1381)', async () => {
    const before = await Sandbox.create({ ...optionsOf(world), timeoutMs: 600_000 });
    await before.files.write('kept', 'yes');
    const asleep = await Sandbox.create({ ...optionsOf(world), timeoutMs: 600_000 });
    await asleep.pause();
    world = await world.restart();
    const options = optionsOf(world);
    const listed = await Sandbox.list(options).nextItems();
    expect(listed.map(({ sandboxId, state }) => [sandboxId, state])).toEqual(
      expect.arrayContaining([
        [before.sandboxId, 'running'],
        [asleep.sandboxId, 'paused'],
      ]),
    );
    const found = await Sandbox.connect(before.sandboxId, options);
    expect(await found.files.read('kept')).toBe('yes');
  });
});
