import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Cluster, makeCluster, type TestNode } from '../../testing/cluster.ts';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { ProviderRuntime } from '../../testing/provider-runtime.ts';

const caller = { org: 'org' };

/** Like pods: the instances run outside of the nodes, and every node reaches them. */
describe.runIf(databaseKinds.includes('postgres'))('a sandbox whose instance every node reaches', () => {
  let cluster: Cluster;
  let provider: ProviderRuntime;
  let a: TestNode;
  let b: TestNode;
  const start = (name: string) =>
    cluster.start(name, {
      parts: { runtimes: new Map([[provider.name, provider]]), defaultRuntime: provider.name },
    });
  beforeEach(async () => {
    cluster = await makeCluster();
    provider = new ProviderRuntime();
    a = await start('a');
    b = await start('b');
    await cluster.settleLease('b');
  });
  afterEach(() => cluster.dispose());

  /** Lets the server of the node die, and the others fence it. */
  async function die(): Promise<void> {
    await cluster.expire('a');
    await b.engine.renewLease();
    await b.engine.fenceDeadNodes();
    await b.engine.reconcile();
  }

  it('runs on under another node when its node has died, and loses nothing', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    provider.work(id, '/work', 'in memory');
    await die();
    expect(await b.engine.get('org', id)).toMatchObject({
      state: 'running',
      node: 'b',
      generation: 1,
      evidence: 'running',
    });
    expect(provider.look(id)).toMatchObject({ files: { '/work': 'in memory' }, counter: 1 });
    expect(await b.engine.directory.locate(id)).toEqual({ is: 'here' });
    expect((await b.engine.pause(caller, id)).sandbox.state).toBe('paused');
  });

  it('is not touched by the node that died, when that node is back', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    provider.work(id, '/work', 'in memory');
    await die();
    a = await start('a');
    await a.engine.reconcile();
    expect(provider.look(id)).toMatchObject({ counter: 1 });
    expect((await b.engine.checkpoints('org', id, 10)).items).toEqual([]);
  });

  it('is no stray for the other nodes while it lives', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    await b.engine.reconcile();
    expect(provider.look(id)).toBeDefined();
  });

  it('is created from a template that another node has prepared, and wakes on any node', async () => {
    const { id } = (await b.engine.create(caller, {})).sandbox;
    provider.work(id, '/work', 'kept');
    await b.engine.pause(caller, id);
    expect((await a.engine.resume(caller, id)).sandbox).toMatchObject({ state: 'running', node: 'a' });
    expect(provider.look(id)).toMatchObject({ files: { '/work': 'kept' } });
  });

  it('changes its node in a drain and runs on', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    provider.work(id, '/work', 'in memory');
    await b.engine.beginDrain('a');
    expect(await a.engine.drainNode()).toBe(false);
    expect(await b.engine.get('org', id)).toMatchObject({ state: 'running', node: 'b', generation: 1 });
    expect(provider.look(id)).toMatchObject({ counter: 1 });
    expect(await b.engine.node('a')).toMatchObject({ drain: { moved: 1, left: 0, failures: [] } });
    await a.engine.reconcile();
    expect(provider.look(id)).toBeDefined();
  });

  it('stays asleep when its node is forgotten, and wakes on another node', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    await a.engine.pause(caller, id);
    await die();
    expect(await b.engine.forgetNode('a')).toMatchObject({ lost: 0 });
    expect((await b.engine.resume(caller, id)).sandbox).toMatchObject({ state: 'running', node: 'b' });
  });
});
