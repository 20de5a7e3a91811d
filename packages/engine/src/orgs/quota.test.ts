import { QUOTA_NAMES, type Quotas, TorporError } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { MemoryRuntime } from '../../testing/memory-runtime.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import { insertOrg, lockOrg, markOrgDeleted, updateQuotas } from './org.ts';
import { quotaUsage } from './quota-usage.ts';

const ORG = 'acme';
const caller = { org: ORG };
const NONE = Object.fromEntries(QUOTA_NAMES.map((name) => [name, null])) as Quotas;

describe.each(databaseKinds)('quotas on %s', (kind) => {
  let world: World;
  beforeAll(async () => {
    world = await makeWorld(kind, {
      runtimes: ({ store }) => [
        new MemoryRuntime({ name: 'sleeper', files: store, capabilities: { snapshotWhileRunning: false } }),
      ],
    });
    await world.db.transaction((tx) =>
      insertOrg(tx, { id: ORG, createdAt: 1, quotas: NONE, deletePausedAfterSeconds: 'default' }),
    );
  });
  afterAll(() => world.dispose());
  afterEach(async () => {
    await set({});
    const { items } = await world.engine.list({ org: ORG }, '', 1_000);
    for (const { id, state } of items) {
      if (!['killed', 'failed', 'lost'].includes(state)) await world.engine.kill(caller, id);
    }
  });

  const set = (quotas: Partial<Quotas>) =>
    world.db.transaction(async (tx) => {
      await lockOrg(tx, ORG);
      await updateQuotas(tx, ORG, { ...NONE, ...quotas });
    });
  const headOfLedger = () => world.db.query('SELECT position FROM ledger_head');
  /** The details of the refusal; checks that the refusal changed nothing. */
  const refusal = async (work: () => Promise<unknown>) => {
    const before = await headOfLedger();
    const thrown = await work().then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(thrown).toBeInstanceOf(TorporError);
    expect(await headOfLedger()).toEqual(before);
    const { code, details, hint } = (thrown as TorporError).toBody();
    expect([code, hint]).toEqual(['quota_exceeded', expect.stringContaining('quota')]);
    return details;
  };

  it('refuse a create that exceeds a quota, and name the quota, its limit and its usage (R104)', async () => {
    const { engine } = world;
    await set({ runningSandboxes: 1 });
    await engine.create(caller, {});
    const details = await refusal(() => engine.create(caller, { name: 'refused' }));
    expect(details).toEqual({ quota: 'runningSandboxes', limit: 1, used: 1 });
    // Other organisations are not affected.
    expect((await engine.create({ org: 'elsewhere' }, {})).sandbox).toMatchObject({ state: 'running' });
  });

  it('are not exceeded by concurrent creates on two servers (R104)', async () => {
    // On PostgreSQL only the lock in the database serialises the two servers.
    const second = await world.another();
    await set({ sandboxes: 3 });
    const creates = Array.from({ length: 8 }, (_, i) =>
      (i % 2 === 0 ? world.engine : second).create(caller, {}).then(
        () => 'made',
        (error: TorporError) => error.code,
      ),
    );
    const outcomes = (await Promise.all(creates)).sort();
    expect(outcomes).toEqual([...Array(3).fill('made'), ...Array(5).fill('quota_exceeded')]);
    expect((await quotaUsage(world.db, ORG)).sandboxes).toBe(3);
  });

  it('refuse a whole fork when not all its children fit (R104)', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    await set({ sandboxes: 3 });
    expect(await refusal(() => engine.fork(caller, id, { count: 3 }))).toMatchObject({ quota: 'sandboxes' });
    expect((await engine.fork(caller, id, { count: 2 })).forks).toHaveLength(2);
    await engine.pause(caller, id);
    await set({ sandboxes: 4, runningSandboxes: 3 });
    // The source is paused, so two run and one more fits.
    expect((await engine.fork(caller, id)).forks).toHaveLength(1);
  });

  it('count a resume and a rollback of a paused sandbox as running (R104)', async () => {
    const { engine } = world;
    const first = (await engine.create(caller, {})).sandbox;
    const { checkpoint } = await engine.pause(caller, first.id);
    await set({ runningSandboxes: 1 });
    const second = (await engine.create(caller, {})).sandbox;
    expect(await refusal(() => engine.resume(caller, first.id))).toMatchObject({ used: 1 });
    expect(
      await refusal(() => engine.rollback(caller, first.id, { checkpointId: checkpoint.id })),
    ).toMatchObject({ used: 1 });
    // Operations on a running sandbox do not count again.
    await set({ runningSandboxes: 0 });
    expect(await engine.resume(caller, second.id)).toMatchObject({ resumed: false });
    await set({ runningSandboxes: 1 });
    await engine.pause(caller, second.id);
    const back = await engine.rollback(caller, first.id, { checkpointId: checkpoint.id });
    expect(back.sandbox.state).toBe('running');
  });

  it('never refuse a pause (R104)', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    await set({ runningSandboxes: 0, sandboxes: 0, memoryMb: 0, diskMb: 0 });
    expect((await engine.pause(caller, id)).sandbox.state).toBe('paused');
  });

  it('let a sandbox run on that its runtime has to pause for a snapshot (R104)', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, { runtime: 'sleeper' })).sandbox;
    await set({ runningSandboxes: 1 });
    await engine.snapshot(caller, id);
    expect((await engine.get(ORG, id)).state).toBe('running');
  });

  it('add up the memory limits of running sandboxes (R104)', async () => {
    const { engine } = world;
    await set({ memoryMb: 1_000 });
    const { id } = (await engine.create(caller, { resources: { memoryMb: 600 } })).sandbox;
    const more = { resources: { memoryMb: 500 } };
    expect(await refusal(() => engine.create(caller, more))).toEqual({
      quota: 'memoryMb',
      limit: 1_000,
      used: 600,
    });
    expect(await refusal(() => engine.fork(caller, id))).toMatchObject({ quota: 'memoryMb' });
    await engine.pause(caller, id);
    await engine.create(caller, more);
    expect(await refusal(() => engine.resume(caller, id))).toMatchObject({ used: 500 });
  });

  it('refuse new sandboxes and snapshots once the checkpoints fill the disk quota (R104)', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    await engine.snapshot(caller, id);
    await set({ diskMb: 1 });
    expect(await refusal(() => engine.snapshot(caller, id))).toMatchObject({ quota: 'diskMb', used: 1 });
    expect(await refusal(() => engine.create(caller, {}))).toMatchObject({ quota: 'diskMb' });
    await set({ diskMb: 2 });
    await engine.snapshot(caller, id);
  });

  it('free the idempotency key of a refused operation (R104)', async () => {
    const { engine } = world;
    const keyed = { ...caller, idempotencyKey: `quota-${kind}` };
    await set({ sandboxes: 0 });
    expect(await refusal(() => engine.create(keyed, {}))).toMatchObject({ limit: 0 });
    await set({});
    expect((await engine.create(keyed, {})).sandbox).toMatchObject({ state: 'running' });
  });

  it('refuse every operation in a deleted organisation (R104)', async () => {
    await world.db.transaction(async (tx) => {
      await insertOrg(tx, { id: 'gone', createdAt: 1, quotas: NONE, deletePausedAfterSeconds: 'default' });
      await markOrgDeleted(tx, 'gone', 2);
    });
    await expect(world.engine.create({ org: 'gone' }, {})).rejects.toMatchObject({ code: 'forbidden' });
  });
});
