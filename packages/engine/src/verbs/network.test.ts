import type { Network, SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Refusal } from '../ports/runtime.ts';

const caller = { org: 'org' };
const network: Network = { mode: 'none', allow: ['registry.npmjs.org'] };
const REFUSED: Refusal = {
  via: 'tcp',
  destination: '10.0.0.1:80',
  name: null,
  reason: 'private_address',
  rule: null,
  message: 'The address is private.',
  count: 1,
};

describe.each(databaseKinds)('the network policy of a sandbox on %s', (kind) => {
  let world: World;
  beforeEach(async () => {
    world = await makeWorld(kind);
  });
  afterEach(() => world.dispose());

  const events = async (sandboxId: SandboxId) => world.engine.events({ sandboxId, afterSeq: 0 }, 1_000);
  const now = (sandboxId: SandboxId, generation: number) =>
    world.runtime.networkOf({ sandboxId, generation });

  it('changes while the sandbox runs, and is kept over pauses and by forks', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    expect(await engine.setNetwork('org', id, network)).toMatchObject({ network });
    expect(now(id, 1)).toEqual(network);
    await engine.pause(caller, id);
    await engine.resume(caller, id);
    expect(now(id, 2)).toEqual(network);
    const [fork] = (await engine.fork(caller, id)).forks;
    expect(fork).toMatchObject({ sandbox: { network } });
    expect((await events(id)).filter(({ type }) => type === 'network.set')).toHaveLength(1);
  });

  it('of a paused sandbox takes effect when it is resumed', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    await engine.pause(caller, id);
    await engine.setNetwork('org', id, network);
    await engine.resume(caller, id);
    expect(now(id, 2)).toEqual(network);
  });

  it('is applied by the next server when a server died between the write and its application', async () => {
    const { engine, runtime } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    const { setNetwork } = runtime;
    runtime.setNetwork = async () => {
      throw new Error('it died here');
    };
    await expect(engine.setNetwork('org', id, network)).rejects.toThrow('it died here');
    runtime.setNetwork = setNetwork;
    expect(now(id, 1)).toEqual({});
    await world.another();
    expect(now(id, 1)).toEqual(network);
  });

  it('is refused when the runtime cannot apply it, and nothing changes', async () => {
    const { engine } = world;
    const bad = { deny: ['!'] };
    await expect(engine.create(caller, { name: 'never', network: bad })).rejects.toMatchObject({
      code: 'invalid_request',
    });
    expect((await engine.list({ org: 'org' }, '', 10)).items).toEqual([]);
    const { id } = (await engine.create(caller, {})).sandbox;
    for (const [org, code] of [
      ['org', 'invalid_request'],
      ['other', 'not_found'],
    ] as const) {
      await expect(engine.setNetwork(org, id, bad)).rejects.toMatchObject({ code });
    }
    expect(await engine.get('org', id)).toMatchObject({ network: {} });
    await engine.kill(caller, id);
    await expect(engine.setNetwork('org', id, network)).rejects.toMatchObject({ code: 'killed' });
  });

  it('reports refused connections at a limited rate', async () => {
    const { engine, runtime, clock } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    const instance = { sandboxId: id, generation: 1 };
    const lines = async () => (await events(id)).filter(({ type }) => type === 'network.refused').length;
    runtime.refuse(instance, REFUSED);
    await expect.poll(lines, { timeout: 20_000 }).toBe(1);
    expect((await events(id)).at(-1)?.data).toEqual(REFUSED);
    for (let i = 0; i < 100; i++) runtime.refuse(instance, REFUSED);
    await expect.poll(lines, { timeout: 20_000 }).toBe(60);
    clock.advance(3_600_000);
    runtime.refuse(instance, REFUSED);
    await expect.poll(lines, { timeout: 20_000 }).toBe(61);
  });

  it('adds no event to the ledger of a sandbox that has ended', async () => {
    const { engine, runtime } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    await engine.kill(caller, id);
    runtime.refuse({ sandboxId: id, generation: 1 }, REFUSED);
    await engine.stop();
    expect((await events(id)).at(-1)?.type).toBe('sandbox.killed');
  });
});
