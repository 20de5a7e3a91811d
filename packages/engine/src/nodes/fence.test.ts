import { type SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Cluster, makeCluster, type TestNode } from '../../testing/cluster.ts';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { connectionNameOf } from '../ports/nodes.ts';

const caller = { org: 'org' };

describe.runIf(databaseKinds.includes('postgres'))('a node whose lease has ended', () => {
  let cluster: Cluster;
  let a: TestNode;
  let b: TestNode;
  beforeEach(async () => {
    cluster = await makeCluster();
    a = await cluster.start('a');
    await cluster.replicated();
    b = await cluster.start('b');
    await cluster.settleLease('b');
  });
  afterEach(() => cluster.dispose());

  const eventsOf = async (id: SandboxId) =>
    (await b.engine.events({ sandboxId: id, afterSeq: 0 }, 1_000)).map(({ type }) => type);
  const epochs = async () =>
    Object.fromEntries(
      (await cluster.fresh.db.query<{ name: string; epoch: number }>('SELECT name, epoch FROM nodes')).map(
        ({ name, epoch }) => [name, epoch],
      ),
    );
  const storeIsAway = () => new TorporError('unreachable', 'The store is away.');

  /** Starts a sandbox on `a` with one replicated checkpoint, and writes a file after it. */
  async function runningWithCheckpoint(request = {}): Promise<SandboxId> {
    const { id } = (await a.engine.create(caller, request)).sandbox;
    a.runtime.work(id, '/work', 'old');
    await a.engine.snapshot(caller, id);
    await cluster.replicated();
    a.runtime.work(id, '/work', 'new');
    return id;
  }

  /** Lets the node die, after its guard has ended these sandboxes. */
  async function die(...ran: SandboxId[]): Promise<void> {
    for (const id of ran) a.runtime.vanish(id, false);
    await cluster.expire('a');
  }

  it('is fenced once, by a node that has held its own lease for a whole term', async () => {
    await cluster.expire('a');
    await cluster.expire('b');
    await b.engine.renewLease();
    await b.engine.fenceDeadNodes();
    expect(await epochs()).toEqual({ a: 1, b: 1 });
    await cluster.settleLease('b');
    await b.engine.fenceDeadNodes();
    expect(await epochs()).toEqual({ a: 2, b: 1 });
    await b.engine.fenceDeadNodes();
    expect(await epochs()).toEqual({ a: 2, b: 1 });
  });

  it('is fenced although it has left transactions open, and the database ends those', async () => {
    const left = await cluster.fresh.openAnother({ applicationName: connectionNameOf('a') });
    const open = Promise.withResolvers<void>();
    const never = Promise.withResolvers<void>();
    const transaction = left.transaction(async (tx) => {
      await tx.query("SELECT name FROM nodes WHERE name = 'a' FOR KEY SHARE");
      open.resolve();
      await never.promise;
      await tx.query('SELECT 1');
    });
    transaction.catch(() => {});
    await open.promise;
    await cluster.expire('a');
    await b.engine.fenceDeadNodes();
    expect(await epochs()).toEqual({ a: 2, b: 1 });
    never.resolve();
    await expect(transaction).rejects.toMatchObject({ code: 'unreachable' });
  });

  it('continues when it is back before its epoch was raised', async () => {
    const id = await runningWithCheckpoint();
    await cluster.expire('a');
    await a.engine.renewLease();
    await b.engine.fenceDeadNodes();
    expect(await epochs()).toEqual({ a: 1, b: 1 });
    expect((await a.engine.get('org', id)).state).toBe('running');
  });

  it('is told that it was fenced, and can write nothing more', async () => {
    let told = false;
    await a.engine.stop();
    a = await cluster.start('a', { cluster: { onFenced: () => (told = true) } });
    const id = await runningWithCheckpoint();
    await cluster.expire('a');
    await b.engine.fenceDeadNodes();
    await a.engine.renewLease();
    expect(told).toBe(true);
    await expect(a.engine.pause(caller, id)).rejects.toMatchObject({ code: 'unreachable' });
  });

  it('leaves sandboxes with a replicated checkpoint paused, and records since when their files are lost', async () => {
    const id = await runningWithCheckpoint();
    await die(id);
    await b.engine.fenceDeadNodes();
    expect(await b.engine.get('org', id)).toMatchObject({
      state: 'paused',
      lost: ['processes', 'files', 'connections'],
      reason: expect.stringMatching(/node "a" has not answered since .* written since .* not in the store/),
    });
    expect(await eventsOf(id)).toContain('sandbox.recovered');
    await expect(b.engine.resume(caller, id)).rejects.toMatchObject({ code: 'checkpoint_missing' });
    const resumed = await b.engine.resume(caller, id, { fallback: ['previous', 'files'] });
    expect(resumed.lost).toContain('files');
    expect(b.runtime.look(id)).toMatchObject({ files: { '/work': 'old' } });
  });

  it('has them woken on other nodes where the fallback policy allows the previous checkpoint', async () => {
    const id = await runningWithCheckpoint({ fallback: ['files', 'previous'] });
    await die(id);
    await b.engine.fenceDeadNodes();
    expect(await b.engine.directory.locate(id)).toEqual({ is: 'here' });
    expect((await b.engine.resume(caller, id)).sandbox.state).toBe('running');
  });

  it('keeps the state of an unreplicated sandbox, with the evidence unknown, until it is back', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    a.runtime.work(id, '/work', 'only here');
    await die(id);
    await b.engine.fenceDeadNodes();
    expect(await b.engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'unknown' });
    expect(await b.engine.directory.locate(id)).toMatchObject({ is: 'unreachable', node: 'a' });
    await expect(b.engine.pause(caller, id)).rejects.toMatchObject({ code: 'unreachable' });

    a = await cluster.start('a');
    expect(await a.engine.get('org', id)).toMatchObject({
      state: 'paused',
      lost: ['processes', 'connections'],
    });
    await a.engine.resume(caller, id);
    expect(a.runtime.look(id)).toMatchObject({ files: { '/work': 'only here' } });
  });

  it('seals what is left of a given-up run as a recovered checkpoint when it is back', async () => {
    const id = await runningWithCheckpoint({ fallback: ['files', 'previous'] });
    await die(id);
    await b.engine.fenceDeadNodes();
    await b.engine.resume(caller, id);

    a = await cluster.start('a');
    const { items } = await b.engine.checkpoints('org', id, 10);
    const recovered = items.find((one) => one.recovered);
    expect(recovered).toMatchObject({ state: 'sealed', health: 'ok' });
    expect(await eventsOf(id)).toContain('checkpoint.recovered');
    expect(a.runtime.look(id)).toBeUndefined();
    expect((await b.engine.get('org', id)).state).toBe('running');
    if (recovered === undefined) throw new Error('Nothing was recovered.');
    const fork = await a.engine.create(caller, { from: recovered.id });
    expect(a.runtime.look(fork.sandbox.id)).toMatchObject({ files: { '/work': 'new' } });
    await a.engine.reconcile();
    expect((await b.engine.checkpoint('org', recovered.id)).state).toBe('sealed');
  });

  it('seals a given-up run with its memory when the instance still runs at its return', async () => {
    const id = await runningWithCheckpoint();
    await cluster.expire('a');
    await b.engine.fenceDeadNodes();
    a = await cluster.start('a');
    const recovered = (await b.engine.checkpoints('org', id, 10)).items.find((one) => one.recovered);
    expect(recovered).toMatchObject({ parts: { files: true, memory: true } });
    expect(a.runtime.look(id)).toBeUndefined();
  });

  it('does not lose a sleeping sandbox: another node wakes its replicated checkpoint', async () => {
    const { id } = (await a.engine.create(caller, {})).sandbox;
    await a.engine.pause(caller, id);
    await cluster.replicated();
    await die();
    expect(await b.engine.directory.locate(id)).toEqual({ is: 'here' });
    await b.engine.fenceDeadNodes();
    expect((await b.engine.resume(caller, id)).lost).toEqual([]);
  });

  it('leaves open operations, which are ended with a true state of their sandbox', async () => {
    const creating = a.runtime.start;
    const { id: resuming } = (await a.engine.create(caller, {})).sandbox;
    await a.engine.pause(caller, resuming);
    await cluster.replicated();
    a.runtime.keepsInstances = false;
    let giveUp = () => {};
    const never = new Promise<never>((_, reject) => {
      giveUp = () => reject(new Error('The machine is gone.'));
    });
    a.runtime.start = () => never;
    const waits = [a.engine.create(caller, { name: 'new' }), a.engine.resume(caller, resuming)];
    for (const wait of waits) wait.catch(() => {});
    let made: string | undefined;
    for (let tries = 0; made === undefined && tries < 500; tries++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      const { items } = await b.engine.list({ org: 'org', name: 'new' }, '', 1);
      const isResuming = (await b.engine.get('org', resuming)).state === 'resuming';
      made = isResuming ? items[0]?.id : undefined;
    }
    await die();
    await b.engine.fenceDeadNodes();
    giveUp();
    a.runtime.start = creating;
    expect(await b.engine.get('org', made as SandboxId)).toMatchObject({
      state: 'failed',
      operationId: null,
    });
    expect(await b.engine.get('org', resuming)).toMatchObject({
      state: 'paused',
      operationId: null,
    });
    expect((await b.engine.resume(caller, resuming)).lost).toEqual([]);
    for (const wait of waits) await expect(wait).rejects.toMatchObject({ code: 'unreachable' });
  });

  describe('when it is forgotten', () => {
    it('is refused while the node is alive', async () => {
      await expect(b.engine.forgetNode('a')).rejects.toMatchObject({ code: 'conflict' });
      await expect(b.engine.forgetNode('b')).rejects.toMatchObject({ code: 'conflict' });
      await expect(b.engine.forgetNode('c')).rejects.toMatchObject({ code: 'not_found' });
    });

    it('loses unreplicated sandboxes, with the reason, and keeps the others', async () => {
      const kept = await runningWithCheckpoint();
      a.replicas.failure = storeIsAway();
      const { id: running } = (await a.engine.create(caller, {})).sandbox;
      const { id: paused } = (await a.engine.create(caller, {})).sandbox;
      await a.engine.pause(caller, paused);
      await die(kept, running);
      expect(await b.engine.forgetNode('a')).toEqual({ lost: 2, kept: 1 });
      for (const id of [running, paused]) {
        expect(await b.engine.get('org', id)).toMatchObject({
          state: 'lost',
          reason: expect.stringContaining('"a"'),
        });
      }
      expect(await b.engine.get('org', kept)).toMatchObject({ state: 'paused' });
      expect(await b.engine.forgetNode('a')).toMatchObject({ lost: 0 });
      expect(await b.engine.directory.nodeByName('a')).toBeUndefined();
    });

    /** Another server of the node b, which calls `before` ahead of every transaction. */
    function startBWith(before: () => Promise<void>): Promise<TestNode> {
      const { db } = cluster.fresh;
      return cluster.start('b', {
        parts: {
          db: {
            dialect: db.dialect,
            query: (sql, params) => db.query(sql, params),
            transaction: (work) => before().then(() => db.transaction(work)),
            listen: (channel, onNotice) => db.listen(channel, onNotice),
            close: () => db.close(),
          },
        },
      });
    }

    it('keeps a sandbox that could not be given up, until the request is repeated', async () => {
      const { id } = (await a.engine.create(caller, {})).sandbox;
      let onTransaction = async () => {};
      b = await startBWith(() => onTransaction());
      await die(id);
      // The first transaction marks the node as forgotten, the second one gives up the sandbox.
      let transactions = 0;
      onTransaction = async () => {
        if (++transactions === 2) throw new Error('The database has closed the connection.');
      };
      await expect(b.engine.forgetNode('a')).rejects.toMatchObject({ code: 'transitioning' });
      expect(await b.engine.get('org', id)).toMatchObject({ node: 'a', state: 'running' });
      expect(await b.engine.forgetNode('a')).toEqual({ lost: 1, kept: 0 });
      expect(await b.engine.get('org', id)).toMatchObject({ state: 'lost' });
    });

    it('keeps what it makes when it is back before that has ended', async () => {
      let onTransaction = async () => {};
      b = await startBWith(() => onTransaction());
      await die();
      // The first transaction marks the node as forgotten, the second one takes over what is left.
      const second = Promise.withResolvers<void>();
      const isBack = Promise.withResolvers<void>();
      let transactions = 0;
      onTransaction = async () => {
        if (++transactions !== 2) return;
        second.resolve();
        await isBack.promise;
      };
      const forgetting = b.engine.forgetNode('a');
      forgetting.catch(() => {});
      await second.promise;
      a = await cluster.start('a');
      const { id } = (await a.engine.create(caller, {})).sandbox;
      isBack.resolve();
      await expect(forgetting).rejects.toMatchObject({ code: 'conflict' });
      expect(await b.engine.nodeDirectory().locate(id)).toMatchObject({ is: 'elsewhere', node: 'a' });
    });

    describe('and its machine comes back later', () => {
      let id: SandboxId;
      beforeEach(async () => {
        id = (await a.engine.create(caller, {})).sandbox.id;
        a.runtime.work(id, '/work', 'only here');
        await die(id);
        await b.engine.forgetNode('a');
      });

      const recovered = async () =>
        (await b.engine.checkpoints('org', id, 10)).items.find((one) => one.recovered);
      /** The server of the machine that was `a`, under another name. */
      const comeBackAs = (name: string) => {
        const { store, runtime, replicas } = a;
        const runtimes = new Map([[runtime.name, runtime]]);
        return cluster.start(name, {
          parts: { store, runtimes, replicas, dataDirectoryId: 'directory-of-a' },
        });
      };

      it('keeps what it had', async () => {
        await cluster.start('a');
        expect(await recovered()).toMatchObject({ state: 'sealed' });
      });

      it('keeps what it had, under another name too', async () => {
        await comeBackAs('d');
        expect(await recovered()).toMatchObject({ state: 'sealed' });
      });

      it('keeps what it had, when another machine has its name meanwhile too', async () => {
        await cluster.start('a', { machine: 'another', parts: { dataDirectoryId: 'another-directory' } });
        expect(await recovered()).toBeUndefined();
        await comeBackAs('d');
        expect(await recovered()).toMatchObject({ state: 'sealed' });
      });
    });
  });
});
