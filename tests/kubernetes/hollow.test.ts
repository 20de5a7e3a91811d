import { whyNotHollow } from '@torpor/pods/testing';
import type { SandboxId } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type HollowWorld, openHollowWorld } from './hollow-world.ts';

const why = whyNotHollow();
const PROGRAM = {
  command: 'read -r line; cat log 2>/dev/null; echo "$line" >> log; echo "answered $line"',
  mode: 'turn',
} as const;
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

describe.skipIf(why !== null)(`a server whose pods are agents${why === null ? '' : `: ${why}`}`, () => {
  let world: HollowWorld;
  beforeAll(async () => {
    world = await openHollowWorld();
  });
  afterAll(() => world?.[Symbol.asyncDispose]());

  const stateOf = async (id: SandboxId) => (await world.torpor.sandboxes.get(id)).state;
  const evidenceOf = async (id: SandboxId) => (await world.torpor.sandboxes.get(id)).evidence;
  const create = (runtime: string) => world.torpor.sandboxes.create({ runtime });

  it('runs commands in a pod that it reaches by its address, and ends it with everything that belongs to it', async () => {
    const { torpor, cluster, objects } = world;
    const { id } = await create('kubernetes');
    expect(await torpor.sandboxes.exec(id, 'id -u; pwd')).toMatchObject({ stdout: '1000\n/home/user\n' });
    expect(cluster.names('secrets')).toHaveLength(1);
    await torpor.sandboxes.kill(id);
    expect(objects()).toEqual([]);
  });

  it('ends an idle sandbox that cannot be paused, and says so', async () => {
    const request = { runtime: 'kubernetes', onIdle: 'stop', idleSeconds: 1 } as const;
    const { id } = await world.torpor.sandboxes.create(request);
    await expect.poll(() => stateOf(id), { timeout: 30_000 }).toBe('killed');
    expect((await world.torpor.sandboxes.get(id)).reason).toContain('idle');
    expect(world.objects()).toEqual([]);
  });

  it('goes on with a conversation and its files over suspend, resume and a deleted pod (R69, R71)', async () => {
    const { torpor, cluster, objects, podOf } = world;
    const sandbox = { runtime: 'agent-sandbox' };
    const session = await torpor.sessions.getOrSpawn('talk', { program: PROGRAM, sandbox });
    expect((await session.send('one')).output).toBe('answered one\n');
    const id = session.view.sandboxId as SandboxId;
    expect((await torpor.sandboxes.pause(id)).sandbox.state).toBe('paused');
    expect(cluster.names('pods')).toEqual([]);
    expect((await session.send('two')).output).toBe('one\nanswered two\n');
    cluster.deletePod(podOf(id));
    await expect.poll(() => stateOf(id), { timeout: 30_000 }).toBe('paused');
    expect((await session.send('three')).output).toBe('one\ntwo\nanswered three\n');
    await torpor.sandboxes.kill(id);
    await expect.poll(objects, { timeout: 30_000 }).toEqual([]);
  });

  it('concludes nothing while the API server answers with 403, and is in step again afterwards (R77)', async () => {
    const { torpor, cluster, objects } = world;
    const ids = [(await create('kubernetes')).id, (await create('agent-sandbox')).id];
    cluster.api.faultOf = () => 403;
    cluster.api.dropWatches();
    for (const id of ids) {
      await expect.poll(() => evidenceOf(id), { timeout: 30_000 }).toBe('unknown');
      expect(await stateOf(id)).toBe('running');
    }
    cluster.api.faultOf = () => undefined;
    for (const id of ids) {
      await expect.poll(() => evidenceOf(id), { timeout: 30_000 }).not.toBe('unknown');
      expect((await torpor.sandboxes.exec(id, 'echo here')).stdout).toBe('here\n');
      await torpor.sandboxes.kill(id);
    }
    await expect.poll(objects, { timeout: 30_000 }).toEqual([]);
  });
});
