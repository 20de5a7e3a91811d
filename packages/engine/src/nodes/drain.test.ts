import { type SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Cluster, makeCluster, type TestNode } from '../../testing/cluster.ts';
import { databaseKinds } from '../../testing/fresh-database.ts';
import type { HandOver } from '../ports/nodes.ts';
import { DEFAULT_SETTINGS } from '../settings.ts';

const caller = { org: 'org' };

describe.runIf(databaseKinds.includes('postgres'))('the nodes of a cluster', () => {
  let cluster: Cluster;
  let a: TestNode;
  let b: TestNode;
  /** Like the hop: the other node resumes the sandbox. */
  let handOver: HandOver;
  beforeEach(async () => {
    cluster = await makeCluster();
    handOver = async (to, { id, org }) => {
      expect(to).toMatchObject({ node: 'b', address: 'http://b.test:7676' });
      await b.engine.resume({ org }, id);
    };
    a = await cluster.start('a', {
      cluster: { handOver: (to, sandbox, signal) => handOver(to, sandbox, signal) },
    });
    await cluster.replicated();
    b = await cluster.start('b');
  });
  afterEach(() => cluster.dispose());

  async function runningOn({ engine, runtime }: TestNode, request = {}): Promise<SandboxId> {
    const { id } = (await engine.create(caller, request)).sandbox;
    runtime.work(id, '/work', 'done');
    return id;
  }

  describe('drain', () => {
    it('moves running sandboxes with their memory, replicates sleeping ones, and ends', async () => {
      const moved = [await runningOn(a), await runningOn(a), await runningOn(a)];
      const asleep = await runningOn(a);
      await a.engine.pause(caller, asleep);
      await b.engine.beginDrain('a');
      await b.engine.beginDrain('a');
      await cluster.replicated();
      expect(await a.engine.drainNode()).toBe(false);
      for (const id of moved) {
        expect(b.runtime.look(id)).toMatchObject({ files: { '/work': 'done' }, counter: 1 });
        expect(await b.engine.get('org', id)).toMatchObject({ state: 'running', node: 'b' });
        const events = await b.engine.events({ sandboxId: id, afterSeq: 0 }, 100);
        const pausing = events.find(({ type }) => type === 'sandbox.pausing');
        expect(pausing?.data).toMatchObject({ reason: 'evacuation' });
      }
      expect(await b.engine.node('a')).toMatchObject({
        cordoned: true,
        draining: true,
        drain: { moved: 3, replicated: 1, left: 0, endedAt: expect.any(Number), failures: [] },
      });
      expect((await b.engine.get('org', asleep)).state).toBe('paused');
      expect(await a.engine.drainNode()).toBe(false);
      expect((await b.engine.node('a')).drain?.moved).toBe(3);
      expect(await b.engine.directory.locate(asleep)).toEqual({ is: 'here' });
    });

    it('accepts no new sandbox and no wake while it lasts', async () => {
      const id = await runningOn(a);
      await a.engine.pause(caller, id);
      await cluster.replicated();
      await b.engine.beginDrain('a');
      await expect(a.engine.create(caller, {})).rejects.toMatchObject({ code: 'transitioning' });
      await expect(a.engine.resume(caller, id)).rejects.toMatchObject({
        code: 'transitioning',
        retryable: true,
      });
      await b.engine.uncordonNode('a');
      expect((await a.engine.resume(caller, id)).sandbox.state).toBe('running');
    });

    it('wakes no sandbox here that is sealed and not yet replicated, for as long as a replication may take', async () => {
      const id = await runningOn(a);
      const upload = Promise.withResolvers<void>();
      a.replicas.gate = upload.promise;
      await b.engine.beginDrain('a');
      await a.engine.pause(caller, id);
      const refused = { code: 'transitioning', retryable: true };
      await expect(a.engine.resume(caller, id)).rejects.toMatchObject(refused);
      cluster.clock.advance(30_000);
      expect((await a.engine.resume(caller, id)).sandbox).toMatchObject({ state: 'running', node: 'a' });
      upload.resolve();
    });

    it('leaves a sandbox running that no other node can take, and records why', async () => {
      const id = await runningOn(a);
      await b.engine.cordonNode('b');
      cluster.clock.advance(2_000);
      await b.engine.beginDrain('a');
      expect(await a.engine.drainNode()).toBe(true);
      expect(await a.engine.get('org', id)).toMatchObject({ state: 'running', node: 'a' });
      expect((await a.engine.node('a')).drain).toMatchObject({
        endedAt: null,
        left: 1,
        failures: [{ sandboxId: id, why: expect.stringContaining('b is cordoned') }],
      });
      await b.engine.uncordonNode('b');
      cluster.clock.advance(2_000);
      expect(await a.engine.drainNode()).toBe(false);
      expect((await b.engine.get('org', id)).node).toBe('b');
    });

    it('leaves sandboxes running while the store cannot be used, and wakes unreplicated ones on their own node', async () => {
      const [running, asleep] = [await runningOn(a), await runningOn(a)];
      a.replicas.failure = new TorporError('unreachable', 'The store is away.');
      await a.engine.pause(caller, asleep);
      const failed = async () =>
        (await cluster.fresh.db.query('SELECT id FROM checkpoints WHERE replica_failures > 0')).length > 0;
      while (!(await failed())) await a.engine.replicate();
      await b.engine.beginDrain('a');
      expect(await a.engine.drainNode()).toBe(true);
      expect((await a.engine.get('org', running)).state).toBe('running');
      expect((await a.engine.node('a')).drain?.failures[0]?.why).toContain('The store is away');
      expect((await a.engine.resume(caller, asleep)).sandbox).toMatchObject({ state: 'running', node: 'a' });
    });

    it('continues with a sandbox that was sealed and could not be handed over', async () => {
      const id = await runningOn(a);
      const works = handOver;
      handOver = async () => {
        throw new TorporError('unreachable', 'The node does not answer.');
      };
      await b.engine.beginDrain('a');
      expect(await a.engine.drainNode()).toBe(true);
      expect((await a.engine.node('a')).drain?.failures[0]?.why).toContain('does not answer');
      expect((await a.engine.get('org', id)).state).toBe('paused');
      handOver = works;
      expect(await a.engine.drainNode()).toBe(false);
      expect(await b.engine.get('org', id)).toMatchObject({ state: 'running', node: 'b' });
    });

    it('asks again when the other node has not answered for long', async () => {
      const id = await runningOn(a);
      const works = handOver;
      const asked = Promise.withResolvers<void>();
      handOver = async () => {
        handOver = works;
        asked.resolve();
        await new Promise(() => {});
      };
      await b.engine.beginDrain('a');
      const round = a.engine.drainNode();
      await asked.promise;
      cluster.clock.advance(DEFAULT_SETTINGS.operationMs);
      await round;
      expect(await b.engine.get('org', id)).toMatchObject({ state: 'running', node: 'b' });
    });

    it('ends with the next start when a stop began it, and goes on when an operator began it', async () => {
      await a.engine.beginDrain('a', { untilRestart: true });
      expect(await a.engine.drainNode()).toBe(false);
      await a.engine.stop();
      a = await cluster.start('a');
      expect(await b.engine.node('a')).toMatchObject({ cordoned: false, draining: false, drain: null });
      await b.engine.beginDrain('a');
      await a.engine.stop();
      a = await cluster.start('a');
      expect(await b.engine.node('a')).toMatchObject({ cordoned: true, draining: true });
    });

    it('is refused for a node that is away or does not exist', async () => {
      await expect(b.engine.beginDrain('c')).rejects.toMatchObject({ code: 'not_found' });
      await cluster.expire('a');
      await expect(b.engine.beginDrain('a')).rejects.toMatchObject({ code: 'unreachable' });
    });
  });

  describe('placement', () => {
    it('chooses the node that has the checkpoint at hand', async () => {
      const id = await runningOn(a);
      const checkpointId = (await a.engine.pause(caller, id)).checkpoint.id;
      await cluster.replicated();
      const what = { memoryMb: 0, checkpointId };
      expect(await a.engine.directory.place(what)).toEqual({ is: 'here' });
      expect(await b.engine.directory.place(what)).toMatchObject({ is: 'elsewhere', node: 'a' });
    });

    it('names for each node why it does not fit', async () => {
      await b.engine.cordonNode('b');
      cluster.clock.advance(2_000);
      await expect(a.engine.directory.place({ memoryMb: 100_000 })).rejects.toMatchObject({
        code: 'capacity',
        message: expect.stringMatching(
          /a has 4096 MB of memory free, and 100000 MB are needed; b is cordoned/,
        ),
      });
      await expect(a.engine.directory.place({ memoryMb: 0, runtime: 'other' })).rejects.toMatchObject({
        message: expect.stringContaining('a has no runtime "other"'),
      });
    });

    it('cannot overfill a node by requests at the same time', async () => {
      const resources = { memoryMb: 1_000 };
      const asked = Array.from({ length: 8 }, () => a.engine.create(caller, { resources }));
      const answers = await Promise.allSettled(asked);
      const refused = answers.filter((one) => one.status === 'rejected');
      expect(refused).toHaveLength(4);
      for (const { reason } of refused) {
        expect(reason).toMatchObject({
          code: 'capacity',
          message: expect.stringContaining('96 MB of memory free'),
        });
      }
      expect((await b.engine.node('a')).used).toMatchObject({ running: 4, memoryMb: 4_000 });
    });

    it('gives a cordoned node no new sandboxes', async () => {
      const id = await runningOn(a);
      await b.engine.cordonNode('a');
      cluster.clock.advance(2_000);
      await expect(a.engine.create(caller, {})).rejects.toMatchObject({ code: 'capacity' });
      expect(await a.engine.directory.place({ memoryMb: 0 })).toMatchObject({ node: 'b' });
      expect((await a.engine.get('org', id)).state).toBe('running');
    });
  });

  it('seal a running sandbox every checkpointEverySeconds, which limits what is lost with its node', async () => {
    const id = await runningOn(a, { checkpointEverySeconds: 60, fallback: ['files', 'previous'] });
    await a.engine.checkpointRunning();
    expect((await a.engine.get('org', id)).checkpointId).toBeNull();
    cluster.clock.advance(60_000);
    await a.engine.checkpointRunning();
    const first = await a.engine.get('org', id);
    expect(first).toMatchObject({
      state: 'running',
      checkpointEverySeconds: 60,
      checkpointId: expect.any(String),
    });
    await a.engine.checkpointRunning();
    expect((await a.engine.get('org', id)).checkpointId).toBe(first.checkpointId);
    await cluster.replicated();
    a.runtime.work(id, '/work', 'after');
    a.runtime.vanish(id, false);
    await cluster.expire('a');
    await cluster.settleLease('b');
    await b.engine.fenceDeadNodes();
    await b.engine.resume(caller, id);
    expect(b.runtime.look(id)).toMatchObject({ files: { '/work': 'done' } });
  });
});
