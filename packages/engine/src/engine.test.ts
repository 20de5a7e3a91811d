import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { databaseKinds } from '../testing/fresh-database.ts';
import { makeWorld, type World } from '../testing/world.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('a sandbox on %s', (kind) => {
  let world: World;
  beforeAll(async () => {
    world = await makeWorld(kind);
  });
  afterAll(() => world.dispose());

  it('is created, works, is paused and is resumed with files and memory (R85, R87, R90)', async () => {
    const { engine, runtime } = world;
    const { id, state } = (await engine.create(caller, {})).sandbox;
    expect(state).toBe('running');
    runtime.work(id, '/home/user/a', '1');

    const paused = await engine.pause(caller, id);
    expect(paused.sandbox).toMatchObject({ state: 'paused', checkpointId: paused.checkpoint.id });
    expect(paused.checkpoint).toMatchObject({ state: 'sealed', parts: { files: true, memory: true } });

    const resumed = await engine.resume(caller, id);
    expect(resumed).toMatchObject({
      sandbox: { state: 'running', generation: 2 },
      source: { checkpointId: paused.checkpoint.id, kind: 'memory' },
      lost: [],
    });
    expect(runtime.look(id)).toMatchObject({ files: { '/home/user/a': '1' }, counter: 1 });
  });
});
