import { databaseKinds } from '@torpor/engine/testing';
import { BUILD_STATES, type BuildState, type JobId, NEXT_BUILD_STATES, STAGE_LABELS } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BuildWorld, buildWorld, OWNER } from '../../testing/build-world.ts';
import { submit } from './submit.ts';
import { transition } from './transition.ts';

/** The specified transition table, written a second time. */
const LEGAL = new Set([
  'queued starting',
  'queued scheduled',
  'queued failed',
  'starting scaffold',
  'starting failed',
  'scaffold code',
  'scaffold failed',
  'code deps',
  'code failed',
  'deps checks',
  'deps failed',
  'checks ready',
  'checks scaffold',
  'checks failed',
  'scheduled queued',
]);

/** The transitions that complete the stage they leave. */
const COMPLETING = new Set([
  'queued starting',
  'starting scaffold',
  'scaffold code',
  'code deps',
  'deps checks',
  'checks ready',
]);

describe.each(databaseKinds)('a transition on %s', (kind) => {
  let world: BuildWorld;
  beforeAll(async () => {
    world = await buildWorld(kind, { working: false, settings: { maxWaiting: 10_000 } });
  });
  afterAll(() => world.dispose());

  const at = 1_700_000_000_000;
  async function jobIn(status: BuildState): Promise<JobId> {
    const order = { ...OWNER, projectId: `in-${status}`, goal: 'g', runner: 'none' } as const;
    const { id } = await submit(world.ctx, order);
    const over = status === 'ready' || status === 'failed';
    await world.db.transaction((tx) =>
      tx.query('UPDATE build_jobs SET status = $2, completed_at = $3, debug_id = $4 WHERE id = $1', [
        id,
        status,
        over ? at : null,
        'seeded',
      ]),
    );
    return id;
  }
  const take = (id: JobId, to: BuildState) =>
    world.db.transaction((tx) => transition(tx, id, to, { at, change: { debugId: 'd' } }));

  it('follows the table over all 81 pairs, and writes nothing for the others (R1, R2)', async () => {
    for (const from of BUILD_STATES) {
      for (const to of BUILD_STATES) {
        const id = await jobIn(from);
        const before = await world.row(id);
        const events = await world.eventsOf(id);
        const taken = await take(id, to);
        const pair = `${from} ${to}`;
        expect(taken !== undefined, pair).toBe(LEGAL.has(pair));
        if (taken === undefined) expect(await world.row(id), pair).toEqual(before);
        const told = (await world.eventsOf(id)).slice(events.length);
        expect(
          told.map(({ type, status, stage }) => [type, status, stage]),
          pair,
        ).toEqual([
          ...(COMPLETING.has(pair) ? [['build.stage.completed', from, from]] : []),
          ...(LEGAL.has(pair) ? [['build.stage.started', to, to]] : []),
        ]);
      }
    }
    expect(Object.values(NEXT_BUILD_STATES).flat()).toHaveLength(LEGAL.size);
  });

  it('of an unknown job is refused (R2)', async () => {
    expect(await take('job_00000000000000000000', 'starting')).toBeUndefined();
  });

  it('succeeds for exactly one of fifty concurrent attempts, with one event (R3)', async () => {
    const id = await jobIn('queued');
    const tries = await Promise.all(Array.from({ length: 50 }, () => take(id, 'starting')));
    expect(tries.filter((one) => one !== undefined)).toHaveLength(1);
    expect(await world.statesOf(id)).toEqual(['queued', 'starting']);
    expect(await world.eventsOf(id)).toHaveLength(3);
  });

  it('writes state, message, time and event together', async () => {
    const id = await jobIn('deps');
    await take(id, 'checks');
    expect(await world.row(id)).toMatchObject({
      status: 'checks',
      statusMessage: STAGE_LABELS.checks,
      updatedAt: at,
    });
    expect((await world.eventsOf(id)).at(-1)).toEqual({
      type: 'build.stage.started',
      job_id: id,
      status: 'checks',
      stage: 'checks',
      stage_label: 'Running checks...',
      message: 'Running checks...',
      timestamp: '2023-11-14T22:13:20.000Z',
      debug_id: 'd',
    });
  });

  it('is rolled back with its transaction', async () => {
    const id = await jobIn('deps');
    const attempt = world.db.transaction(async (tx) => {
      await transition(tx, id, 'checks', { at });
      throw new Error('the rest failed');
    });
    await expect(attempt).rejects.toThrow('the rest failed');
    expect((await world.row(id)).status).toBe('deps');
    expect(await world.eventsOf(id)).toHaveLength(1);
  });

  it('is read from the database as text (R16)', async () => {
    const { status, statusMessage, projectId } = await world.row(await jobIn('code'));
    for (const text of [status, statusMessage, projectId]) expect(typeof text).toBe('string');
  });

  it('cannot make a build failed without a debug id, because the database refuses it (R11)', async () => {
    const id = await jobIn('code');
    const write = world.db.transaction((tx) =>
      tx.query(
        `UPDATE build_jobs SET status = 'failed', completed_at = 1, debug_id = NULL WHERE id = '${id}'`,
      ),
    );
    await expect(write).rejects.toThrow();
  });
});
