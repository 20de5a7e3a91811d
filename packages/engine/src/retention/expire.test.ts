import {
  type CreateRequest,
  QUOTA_NAMES,
  type Quotas,
  type Retention,
  type SandboxId,
} from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds, makeWorld, type World } from '../../testing/index.ts';
import { insertOrg, lockOrg, updateOrgRetention } from '../orgs/org.ts';
import { DEFAULT_SETTINGS } from '../settings.ts';

const DAY_MS = 86_400_000;
const DAY = 86_400;

describe.each(databaseKinds)('retention of paused sandboxes on %s', (kind) => {
  let world: World;
  let org: string;
  let caller: { readonly org: string };
  let orgs = 0;
  beforeAll(async () => {
    world = await makeWorld(kind);
  });
  beforeEach(async () => {
    org = `org-${++orgs}`;
    caller = { org };
    const quotas = Object.fromEntries(QUOTA_NAMES.map((name) => [name, null])) as Quotas;
    await world.db.transaction((tx) =>
      insertOrg(tx, { id: org, createdAt: 1, quotas, deletePausedAfterSeconds: 'default' }),
    );
  });
  afterAll(() => world.dispose());

  async function paused(request: CreateRequest = {}): Promise<SandboxId> {
    const { id } = (await world.engine.create(caller, request)).sandbox;
    await world.engine.pause(caller, id);
    return id;
  }
  const state = async (id: SandboxId) => (await world.engine.get(org, id)).state;
  const after = async (ms: number) => {
    world.clock.advance(ms);
    await world.engine.expirePaused();
  };
  const eventsOf = async (id: SandboxId) =>
    (await world.engine.events({ sandboxId: id, afterSeq: 0 }, 100)).map(({ type, data }) => ({
      type,
      data,
    }));
  const typesOf = async (id: SandboxId) => (await eventsOf(id)).map(({ type }) => type);
  const setOrg = (retention: Retention) =>
    world.db.transaction(async (tx) => {
      await lockOrg(tx, org);
      await updateOrgRetention(tx, org, retention);
    });

  it('keeps paused sandboxes for good unless a policy says otherwise (R87)', async () => {
    const id = await paused();
    await after(3_000 * DAY_MS);
    await after(3_000 * DAY_MS);
    expect(await world.engine.get(org, id)).toMatchObject({
      state: 'paused',
      deletePausedAfterSeconds: null,
      deletesAt: null,
    });
  });

  it('announces the deletion a day ahead, and deletes at the announced time with the reason (R95)', async () => {
    const id = await paused({ deletePausedAfterSeconds: 30 * DAY });
    const since = world.clock.now();
    expect((await world.engine.get(org, id)).deletesAt).toBe(since + 30 * DAY_MS);
    await after(29 * DAY_MS - 1);
    expect(await typesOf(id)).not.toContain('sandbox.expiring');

    await after(1);

    const deletesAt = since + 30 * DAY_MS;
    expect((await eventsOf(id)).at(-1)).toEqual({
      type: 'sandbox.expiring',
      data: { deletesAt, unusedSince: since },
    });
    expect(await world.engine.get(org, id)).toMatchObject({ state: 'paused', deletesAt });
    await after(DAY_MS - 1);
    expect(await state(id)).toBe('paused');
    await after(1);
    expect(await world.engine.get(org, id)).toMatchObject({
      state: 'killed',
      deletesAt: null,
      reason: expect.stringContaining('retention'),
    });
    const [killing, killed] = (await eventsOf(id)).slice(-2);
    expect(killing).toMatchObject({ type: 'sandbox.killing', data: { reason: 'expired' } });
    expect(killed?.type).toBe('sandbox.killed');
  });

  it('deletes nothing that was not announced, however late the round runs (R95)', async () => {
    const id = await paused({ deletePausedAfterSeconds: 30 * DAY });
    await after(100 * DAY_MS);
    expect(await world.engine.get(org, id)).toMatchObject({
      state: 'paused',
      deletesAt: world.clock.now() + DAY_MS,
    });
    await after(DAY_MS - 1);
    expect(await state(id)).toBe('paused');
    await after(1);
    expect(await state(id)).toBe('killed');
  });

  it('cancels the deletion when the sandbox is resumed, and counts from the next pause', async () => {
    const id = await paused({ deletePausedAfterSeconds: 2 * DAY });
    await after(DAY_MS);
    expect(await typesOf(id)).toContain('sandbox.expiring');
    await world.engine.resume(caller, id);
    expect((await world.engine.get(org, id)).deletesAt).toBeNull();
    await after(10 * DAY_MS);
    expect(await state(id)).toBe('running');

    await world.engine.pause(caller, id);
    await after(DAY_MS - 1);
    expect((await typesOf(id)).filter((type) => type === 'sandbox.expiring')).toHaveLength(1);
    await after(1);
    expect((await typesOf(id)).filter((type) => type === 'sandbox.expiring')).toHaveLength(2);
    expect(await state(id)).toBe('paused');
  });

  it.each(['snapshot', 'fork'] as const)('counts a %s of the paused sandbox as use', async (how) => {
    const id = await paused({ deletePausedAfterSeconds: 2 * DAY });
    await after(DAY_MS);
    await world.engine[how](caller, id);
    await after(DAY_MS);
    expect(await world.engine.get(org, id)).toMatchObject({
      state: 'paused',
      deletesAt: world.clock.now() + DAY_MS,
    });
  });

  it('uses the policy of the organisation if the sandbox has none, and then the setting of the server', async () => {
    const own = await paused({ deletePausedAfterSeconds: null });
    const ofOrg = await paused();
    await setOrg(5 * DAY);
    await after(10 * DAY_MS);
    await after(DAY_MS);
    expect([await state(own), await state(ofOrg)]).toEqual(['paused', 'killed']);

    const ofServer = await paused();
    await setOrg('default');
    const other = await world.another({
      settings: { ...DEFAULT_SETTINGS, deletePausedAfterMs: 5 * DAY_MS },
    });
    expect((await other.get(org, ofServer)).deletePausedAfterSeconds).toBe(5 * DAY);
    const { items } = await other.list({ org, states: ['paused'] }, '', 10);
    expect(items.map(({ id }) => id).sort()).toEqual([own, ofServer].sort());
  });

  it('withdraws an announcement when the policy has changed', async () => {
    await setOrg(2 * DAY);
    const id = await paused();
    await after(DAY_MS);
    expect(await typesOf(id)).toContain('sandbox.expiring');
    await setOrg(null);
    await after(5 * DAY_MS);
    expect(await state(id)).toBe('paused');
    expect(await typesOf(id)).toContain('sandbox.expiry_withdrawn');
    expect((await world.engine.get(org, id)).deletesAt).toBeNull();
  });

  it('announces again, a full notice period ahead, when the policy of the sandbox is set again', async () => {
    const id = await paused({ deletePausedAfterSeconds: 2 * DAY });
    await after(DAY_MS);
    expect(await world.engine.setRetention(org, id, 1)).toMatchObject({ deletePausedAfterSeconds: 1 });
    await after(DAY_MS);
    expect(await state(id)).toBe('paused');
    await after(DAY_MS);
    expect(await state(id)).toBe('killed');
    await expect(world.engine.setRetention(org, id, null)).rejects.toMatchObject({ code: 'killed' });
  });

  it('keeps the named checkpoints and templates of a deleted sandbox', async () => {
    const { id } = (await world.engine.create(caller, { deletePausedAfterSeconds: DAY })).sandbox;
    const named = (await world.engine.snapshot(caller, id, { name: 'release' })).checkpoint;
    const made = (await world.engine.snapshot(caller, id, {})).checkpoint;
    await world.engine.nameTemplate(org, { name: 'mine', from: made.id });
    await world.engine.pause(caller, id);
    const { checkpointId } = await world.engine.get(org, id);
    await after(DAY_MS);
    await after(DAY_MS);
    expect(await state(id)).toBe('killed');
    await world.engine.reconcile();
    expect((await world.engine.checkpoint(org, checkpointId as never)).state).toBe('deleted');
    expect((await world.engine.checkpoint(org, named.id)).state).toBe('sealed');
    expect((await world.engine.create(caller, { template: 'mine' })).sandbox.state).toBe('running');
    expect((await world.engine.create(caller, { from: named.id })).sandbox.state).toBe('running');
  });

  it('finishes a deletion that failed half-way (R112)', async () => {
    const id = await paused({ deletePausedAfterSeconds: DAY });
    await after(DAY_MS);
    const failing = await world.another({
      faults: {
        pass: (point) => {
          if (point === 'kill.kill-accepted') throw new Error('no');
        },
      },
    });
    world.clock.advance(DAY_MS);
    await failing.expirePaused();
    expect(await state(id)).toBe('killing');
    await world.engine.reconcile();
    expect(await state(id)).toBe('killed');
  });
});
