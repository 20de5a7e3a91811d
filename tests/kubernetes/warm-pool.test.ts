import { whyNotHollow } from '@torpor/pods/testing';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type HollowWorld, openHollowWorld } from './hollow-world.ts';

const why = whyNotHollow();
const runtime = 'agent-sandbox';
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

describe.skipIf(why !== null)(`a warm pool of agent-sandbox${why === null ? '' : `: ${why}`}`, () => {
  let world: HollowWorld;
  beforeAll(async () => {
    world = await openHollowWorld({ variables: { TORPOR_KUBERNETES_WARM_POOL: '1' } });
    await poolIsFull();
  });
  afterAll(() => world?.[Symbol.asyncDispose]());

  const sandboxes = () => world.cluster.names('sandboxes').filter((name) => name !== 'sandboxes');
  const podsRun = () =>
    [...world.cluster.api.objects]
      .filter(([path]) => path.includes('/pods/'))
      .every(([, { status }]) => status?.['phase'] === 'Running');
  const poolIsFull = () =>
    vi.waitFor(() => expect([world.cluster.waiting().length, podsRun()]).toEqual([1, true]), {
      timeout: 30_000,
    });
  /** Nothing but the pool with what waits in it. */
  const onlyThePoolIsLeft = () =>
    expect
      .poll(
        () => [world.cluster.names('sandboxclaims'), sandboxes(), world.cluster.names('secrets').length],
        {
          timeout: 30_000,
        },
      )
      .toEqual([[], world.cluster.waiting(), 1]);

  it('gives a waiting pod to a new sandbox, which is one as every other from then on', async () => {
    const { torpor, cluster } = world;
    const [waiting] = cluster.waiting();
    const { id } = await torpor.sandboxes.create({ runtime, env: { NAME: 'value' } });
    const made = [...cluster.api.objects].find(([path]) => path.endsWith(`/sandboxes/${waiting}`))?.[1];
    expect(made?.metadata).toMatchObject({
      labels: { 'torpor.dev/sandbox': id.slice(4), 'torpor.dev/generation': '1' },
      annotations: { 'torpor.dev/state': 'running' },
    });
    expect(made?.metadata.ownerReferences).toBeUndefined();
    await expect.poll(() => cluster.names('sandboxclaims'), { timeout: 5_000 }).toEqual([]);
    const { stdout } = await torpor.sandboxes.exec(id, 'echo kept > file; echo $NAME');
    expect(stdout).toBe('value\n');
    expect((await torpor.sandboxes.pause(id)).sandbox.state).toBe('paused');
    await torpor.sandboxes.resume(id);
    expect((await torpor.sandboxes.exec(id, 'cat file')).stdout).toBe('kept\n');
    await torpor.sandboxes.kill(id);
    await poolIsFull();
    await onlyThePoolIsLeft();
  });

  it('is not asked for a sandbox with other limits', async () => {
    const { torpor, cluster } = world;
    const before = cluster.waiting();
    const { id } = await torpor.sandboxes.create({ runtime, resources: { memoryMb: 64 } });
    expect(cluster.waiting()).toEqual(before);
    expect(sandboxes()).toHaveLength(2);
    await torpor.sandboxes.kill(id);
    await onlyThePoolIsLeft();
  });

  it('is made again when it was deleted, and creates go on without it', async () => {
    const { torpor, cluster } = world;
    const [pool] = cluster.names('sandboxwarmpools');
    const path = [...cluster.api.objects.keys()].find((one) => one.endsWith(`/sandboxwarmpools/${pool}`));
    cluster.api.remove(path ?? '');
    expect(cluster.waiting()).toEqual([]);
    const { id } = await torpor.sandboxes.create({ runtime });
    expect((await torpor.sandboxes.exec(id, 'echo here')).stdout).toBe('here\n');
    await torpor.sandboxes.kill(id);
    await poolIsFull();
    await onlyThePoolIsLeft();
  });
});
