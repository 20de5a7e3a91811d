import { type SandboxId, TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Cluster, makeCluster, type TestNode } from '../../testing/cluster.ts';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { MemoryReplicas } from '../../testing/memory-replicas.ts';
import { VirtualStore } from '../../testing/virtual-files.ts';

const caller = { org: 'org' };

describe.runIf(databaseKinds.includes('postgres'))('several nodes', () => {
  let cluster: Cluster;
  let a: TestNode;
  let b: TestNode;
  beforeAll(async () => {
    cluster = await makeCluster();
    a = await cluster.start('a');
    await replicated();
    b = await cluster.start('b');
  });
  afterAll(() => cluster.dispose());

  const replicated = () => cluster.replicated();

  async function pausedOn(node: TestNode): Promise<SandboxId> {
    const { id } = (await node.engine.create(caller, {})).sandbox;
    node.runtime.work(id, '/work', 'done');
    await node.engine.pause(caller, id);
    return id;
  }

  const nodeOf = async (id: SandboxId) =>
    (await cluster.fresh.db.query<{ node: string }>('SELECT node FROM sandboxes WHERE id = $1', [id]))[0]
      ?.node;

  /** Expects that a server is refused and that nothing which the nodes share has changed. */
  async function expectRefused(starting: () => Promise<unknown>, error: object): Promise<void> {
    const rows = async () => ({
      nodes: await cluster.fresh.db.query('SELECT * FROM nodes ORDER BY name'),
      servers: await cluster.fresh.db.query('SELECT * FROM servers ORDER BY id'),
      objects: await cluster.fresh.db.query('SELECT * FROM stored_objects ORDER BY key'),
    });
    const before = await rows();
    await expect(starting()).rejects.toMatchObject(error);
    expect(await rows()).toEqual(before);
  }

  it('refuse a machine with another bucket, and change nothing', async () => {
    const replicas = new MemoryReplicas(new VirtualStore(), 'memory://another-bucket');
    await expectRefused(() => cluster.start('c', { parts: { replicas } }), {
      code: 'conflict',
      hint: expect.stringContaining('--store memory://replicas'),
    });
  });

  it('refuse a machine on which another store answers at the same address, and change nothing', async () => {
    const replicas = new MemoryReplicas(new VirtualStore());
    await expectRefused(() => cluster.start('c', { parts: { replicas } }), {
      code: 'conflict',
      message: expect.stringContaining('is not the one that has the checkpoints'),
    });
    expect([...replicas.objects]).toEqual([]);
  });

  it('refuse a machine that may not use the bucket, and change nothing', async () => {
    const replicas = new MemoryReplicas(new VirtualStore(), undefined, cluster.bucket);
    replicas.failure = new TorporError('forbidden', 'The store refuses.', { details: { fault: 'refusing' } });
    await expectRefused(() => cluster.start('c', { parts: { replicas } }), {
      code: 'forbidden',
    });
  });

  it('agree on one store when two are first at the same time: the node with the other one is refused', async () => {
    const fresh = await makeCluster();
    try {
      const gate = Promise.withResolvers<void>();
      const other = Object.assign(new MemoryReplicas(new VirtualStore()), {
        gate: gate.promise,
        newKey: () => 'identity/store-of-x',
      });
      const late = fresh.start('x', { parts: { replicas: other } });
      late.catch(() => {});
      const isWriting = async () =>
        (await fresh.fresh.db.query("SELECT key FROM stored_objects WHERE kind = 'identity'")).length > 0;
      await expect.poll(isWriting).toBe(true);
      await fresh.start('y');
      gate.resolve();
      await expect(late).rejects.toThrow(/is not the one that has the checkpoints/);
    } finally {
      await fresh.dispose();
    }
  });

  it('know of each other what their checkpoints take on the disk, and the bound for it', async () => {
    await a.engine.keepCacheBound();
    await a.engine.renewLease();
    const { capacity, used } = await b.engine.node('a');
    expect(used.cacheBytes).toBeGreaterThan(0);
    expect(capacity.cacheBytes).toBeGreaterThan(used.cacheBytes ?? 0);
  });

  it('seal memory in the form of the earlier version as long as a node has that version', async () => {
    const fresh = await makeCluster();
    try {
      const node = await fresh.start('new');
      await fresh.start('other');
      const capture = vi.spyOn(node.runtime, 'capture');
      const otherIs = (sql: string) =>
        fresh.fresh.db.transaction((tx) => tx.query(`UPDATE nodes SET ${sql} WHERE name = 'other'`));
      for (const sql of [
        // The server of an earlier version sets the time at which it joins, and nothing else.
        'joined_at = joined_at + 1',
        'reads_page_layers_since = joined_at',
        // It is away and may come back.
        'reads_page_layers_since = NULL, lease_until = 0',
        'forgotten = 1',
      ]) {
        await otherIs(sql);
        await node.engine.renewLease();
        await pausedOn(node);
      }
      const forms = capture.mock.calls.map(([, , staging]) => staging.memoryForm);
      expect(forms).toEqual(['whole', 'shared pages', 'whole', 'shared pages']);
    } finally {
      await fresh.dispose();
    }
  });

  it('refuse a machine without the data key of the store, and change nothing', async () => {
    const replicas = Object.assign(new MemoryReplicas(new VirtualStore(), undefined, cluster.bucket), {
      hasKey: () => false,
    });
    await expectRefused(() => cluster.start('c', { parts: { replicas } }), {
      code: 'conflict',
      message: expect.stringContaining('data key'),
    });
  });

  describe('a name', () => {
    it('belongs to one data directory; another one is refused and told the holder', () =>
      expectRefused(() => cluster.start('a', { parts: { dataDirectoryId: 'another' } }), {
        code: 'in_use',
        message: expect.stringContaining('directory-of-a at http://a.test:7676'),
      }));

    it('is the only name of its data directory; a second one is refused and told the first', () =>
      expectRefused(() => cluster.start('c', { parts: { dataDirectoryId: 'directory-of-a' } }), {
        code: 'in_use',
        message: expect.stringContaining('"a"'),
      }));

    it('is required on a database that nodes share', async () => {
      await expect(cluster.start('c', { parts: { cluster: undefined } })).rejects.toMatchObject({
        code: 'in_use',
        hint: expect.stringContaining('--node'),
      });
    });

    it('stays the same over a restart, as does the epoch', async () => {
      const [before] = await cluster.fresh.db.query("SELECT epoch FROM nodes WHERE name = 'a'");
      await a.engine.stop();
      a = await cluster.start('a');
      expect(await cluster.fresh.db.query("SELECT epoch FROM nodes WHERE name = 'a'")).toEqual([before]);
    });
  });

  it('refuse a machine whose clock differs from that of the database by a minute, and change nothing', async () => {
    const [{ now } = { now: 0 }] = await cluster.fresh.db.query<{ now: number }>('SELECT {now} AS now');
    const late = { ...cluster.clock, now: () => now - 60_000, monotonic: () => 0, sleep: async () => {} };
    const { DEFAULT_SETTINGS } = await import('../settings.ts');
    await expectRefused(() => cluster.start('c', { parts: { clock: late, settings: DEFAULT_SETTINGS } }), {
      code: 'conflict',
      message: expect.stringContaining('60 seconds'),
    });
  });

  it('adopt the sandboxes of a server that was alone, and only with its data directory', async () => {
    const other = await makeCluster();
    try {
      const alone = await other.start('x', { parts: { cluster: undefined } });
      const { id } = (await alone.engine.create(caller, {})).sandbox;
      await alone.engine.stop();
      await expect(other.start('y')).rejects.toMatchObject({ code: 'in_use' });
      const x = await other.start('x');
      expect((await x.engine.get('org', id)).state).toBe('running');
      expect(await x.engine.directory.locate(id)).toEqual({ is: 'here' });
      const y = await other.start('y');
      expect(await y.engine.directory.locate(id)).toMatchObject({ is: 'elsewhere', node: 'x' });
    } finally {
      await other.dispose();
    }
  });

  describe('a sandbox', () => {
    it('is located on its node by every other node', async () => {
      const { id } = (await a.engine.create(caller, {})).sandbox;
      expect(await a.engine.directory.locate(id)).toEqual({ is: 'here' });
      expect(await b.engine.directory.locate(id)).toEqual({
        is: 'elsewhere',
        node: 'a',
        address: 'http://a.test:7676',
      });
      expect(await b.engine.directory.locate('sbx_nothing' as SandboxId)).toEqual({ is: 'here' });
    });

    it('accepts operations on its own node alone', async () => {
      const { id } = (await a.engine.create(caller, {})).sandbox;
      const orders = [
        () => b.engine.pause(caller, id),
        () => b.engine.snapshot(caller, id),
        () => b.engine.kill(caller, id),
        () => b.engine.fork(caller, id),
        () => b.engine.resume(caller, id),
      ];
      for (const order of orders)
        await expect(order()).rejects.toMatchObject({
          code: 'unreachable',
          message: expect.stringContaining('"a"'),
        });
      expect((await a.engine.get('org', id)).state).toBe('running');
    });

    it('is not touched by the rounds of other nodes, which never conclude that it is gone', async () => {
      const { id } = (await a.engine.create(caller, { timeoutSeconds: 1 })).sandbox;
      cluster.clock.advance(60_000);
      await b.engine.sweep();
      const round = await b.engine.reconcile();
      expect(round).toMatchObject({ repaired: 0, unknown: 0, failed: 0 });
      expect((await a.engine.get('org', id)).state).toBe('running');
      await a.engine.sweep();
      await a.engine.sweep();
      expect((await a.engine.get('org', id)).state).toBe('paused');
    });

    it('keeps its checkpoints although other nodes do not have them on their disks', async () => {
      a.replicas.failure = new TorporError('unreachable', 'The store is away.');
      const id = await pausedOn(a);
      await b.engine.inspectCheckpoints();
      await b.engine.reconcile();
      expect((await a.engine.get('org', id)).checkpointHealth).toMatchObject({ health: 'ok' });
      await expect(b.engine.resume(caller, id)).rejects.toMatchObject({
        code: 'unreachable',
        message: expect.stringContaining('not replicated'),
      });
      expect((await a.engine.resume(caller, id)).source.kind).toBe('memory');
      a.replicas.failure = undefined;
    });

    it('wakes on another node with its memory when its checkpoint is replicated, and lives there', async () => {
      const id = await pausedOn(a);
      await replicated();
      const resumed = await b.engine.resume(caller, id);
      expect(resumed).toMatchObject({ resumed: true, source: { kind: 'memory' }, lost: [] });
      expect(b.runtime.look(id)).toMatchObject({ files: { '/work': 'done' }, counter: 1 });
      expect(await nodeOf(id)).toBe('b');
      expect(await a.engine.directory.locate(id)).toMatchObject({ is: 'elsewhere', node: 'b' });
      await a.engine.reconcile();
      expect(a.runtime.look(id)).toBeUndefined();
      expect((await b.engine.get('org', id)).state).toBe('running');
    });

    it('wakes from its files, as the answer tells, on a machine that cannot use its memory', async () => {
      const id = await pausedOn(a);
      await replicated();
      b.runtime.build = 'build-2';
      expect(await b.engine.resume(caller, id)).toMatchObject({
        source: { kind: 'files' },
        lost: ['processes'],
        skipped: [{ part: 'memory', code: 'checkpoint_incompatible' }],
      });
      expect(b.runtime.look(id)).toMatchObject({ files: { '/work': 'done' } });
      b.runtime.build = 'build-1';
    });

    it('is woken once when two nodes are asked at the same time', async () => {
      const id = await pausedOn(a);
      await replicated();
      const answers = await Promise.allSettled([a.engine.resume(caller, id), b.engine.resume(caller, id)]);
      const won = answers.filter(({ status }) => status === 'fulfilled');
      expect(won.length).toBe(1);
      expect([a.runtime.look(id), b.runtime.look(id)].filter((one) => one !== undefined)).toHaveLength(1);
    });

    it('keeps the files of its last seal when it moves to another node and back', async () => {
      const id = await pausedOn(a);
      await replicated();
      await b.engine.resume(caller, id);
      b.runtime.work(id, '/work', 'more');
      await b.engine.pause(caller, id);
      await replicated();
      await a.engine.resume(caller, id);
      expect(a.runtime.look(id)).toMatchObject({ files: { '/work': 'more' }, counter: 2 });
    });

    it('is created on any node from a replicated template of another node', async () => {
      const { sandbox } = await b.engine.create(caller, {});
      expect(sandbox.state).toBe('running');
      expect(await nodeOf(sandbox.id)).toBe('b');
    });

    it('becomes a template at any node also before its checkpoint is replicated, and starts where that is', async () => {
      a.replicas.failure = new TorporError('unreachable', 'The store is away.');
      try {
        const { id } = (await a.engine.create(caller, {})).sandbox;
        const { checkpoint } = await a.engine.snapshot(caller, id, {});
        const template = await b.engine.nameTemplate('org', { name: 'app', from: checkpoint.id });
        expect(template).toMatchObject({ name: 'app', state: 'ready' });
        const placement = { runtime: template.runtime, memoryMb: 0, checkpointId: checkpoint.id };
        expect(await b.engine.directory.place(placement)).toMatchObject({ is: 'elsewhere', node: 'a' });
      } finally {
        a.replicas.failure = undefined;
      }
    });

    it('is killed on any node while it sleeps', async () => {
      const id = await pausedOn(a);
      expect((await b.engine.kill(caller, id)).sandbox.state).toBe('killed');
      await a.engine.reconcile();
      expect(a.runtime.look(id)).toBeUndefined();
    });
  });

  it('begin no upload that another node has under way', async () => {
    a.replicas.shared.push({ kind: 'layer', subject: 'lay_1' });
    b.replicas.shared.push({ kind: 'layer', subject: 'lay_1' });
    let finish = () => {};
    a.replicas.gate = new Promise((resolve) => {
      finish = resolve;
    });
    const [one, two] = [await pausedOn(a), await pausedOn(b)];
    for (let i = 0; i < 20; i++) {
      await a.engine.replicate();
      await b.engine.replicate();
      await new Promise((resolve) => setImmediate(resolve));
    }
    finish();
    await replicated();
    expect([...cluster.bucket.objects].filter((key) => key.includes('lay_1'))).toHaveLength(1);
    expect([await nodeOf(one), await nodeOf(two)]).toEqual(['a', 'b']);
  });

  it('write nothing under an epoch that another node has raised', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    await cluster.raiseEpoch('a');
    await expect(a.engine.pause(caller, id)).rejects.toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('fenced'),
    });
    await expect(a.engine.setLifetime('org', id, 10)).rejects.toMatchObject({ code: 'unreachable' });
  });
});
