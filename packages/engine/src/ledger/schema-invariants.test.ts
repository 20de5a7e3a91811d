import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import { ConstraintViolation } from '../ports/database.ts';

const caller = { org: 'org' };

/** The constraints and triggers of the engine's migrations refuse these writes, whatever code sends them. */
describe.each(databaseKinds)('raw SQL on %s', (kind) => {
  let world: World;
  beforeEach(async () => {
    world = await makeWorld(kind);
  });
  afterEach(() => world.dispose());

  const write = (sql: string, params: readonly (string | number | null)[] = []) =>
    world.db.transaction((tx) => tx.query(sql, params));
  const refused = (promise: Promise<unknown>) => expect(promise).rejects.toBeInstanceOf(ConstraintViolation);
  const nextEvent = async (sandboxId: string, fields: Record<string, string | number | null>) =>
    world.db.transaction(async (tx) => {
      const [last] = await tx.query('SELECT * FROM events WHERE sandbox_id = $1 ORDER BY seq DESC LIMIT 1', [
        sandboxId,
      ]);
      const [head] = await tx.query<{ position: number }>(
        'UPDATE ledger_head SET position = position + 1 RETURNING position',
      );
      const row = {
        ...last,
        id: `evt_${'x'.repeat(20)}`,
        seq: Number(last?.['seq']) + 1,
        position: head?.position ?? 0,
        previous_seq: last?.['seq'] ?? null,
        previous_state: last?.['state'] ?? null,
        ...fields,
      };
      const columns = Object.keys(row);
      await tx.query(
        `INSERT INTO events (${columns.join(', ')}) VALUES (${columns.map((_, i) => `$${i + 1}`).join(', ')})`,
        Object.values(row) as (string | number | null)[],
      );
    });

  it('cannot write the state paused without a sealed checkpoint (R85)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await refused(write("UPDATE sandboxes SET state = 'paused' WHERE id = $1", [id]));
    await refused(nextEvent(id, { state: 'paused', checkpoint_id: null }));
    await refused(nextEvent(id, { state: 'paused', checkpoint_id: 'ckpt_that_is_not_there' }));
  });

  it('cannot attach a checkpoint that is still being written or belongs to another sandbox', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    const other = (await world.engine.create(caller, {})).sandbox;
    const { checkpoint } = await world.engine.pause(caller, other.id);
    await refused(nextEvent(id, { state: 'paused', checkpoint_id: checkpoint.id }));
    await write(
      `INSERT INTO checkpoints (id, org, sandbox_id, runtime, state, sealed, has_files, has_memory, needs, external,
         replayable, recovered, health, created_at, seq)
       VALUES ('ckpt_half', 'org', $1, 'memory', 'writing', 0, 0, 0, '{}', 0, 1, 0, 'unknown', 0, 1)`,
      [id],
    );
    await refused(nextEvent(id, { state: 'paused', checkpoint_id: 'ckpt_half' }));
    await refused(write("UPDATE checkpoints SET state = 'sealed' WHERE id = 'ckpt_half'"));
  });

  it('cannot delete the checkpoint of a paused sandbox (R87)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    const { checkpoint } = await world.engine.pause(caller, id);
    await refused(
      write("UPDATE checkpoints SET state = 'deleted', sealed = 0 WHERE id = $1", [checkpoint.id]),
    );
    await refused(write('DELETE FROM checkpoints WHERE id = $1', [checkpoint.id]));
  });

  it('cannot open two operations on one sandbox (R111)', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    const open = (op: string) =>
      write(
        `INSERT INTO operations (id, org, sandbox_id, kind, request, reason, owner, fence, started_at, deadline_at)
         VALUES ($1, 'org', $2, 'pause', '{}', 'request', 'me', 1, 0, 0)`,
        [op, id],
      );
    await open('op_one');
    await refused(open('op_two'));
    await write("UPDATE operations SET ended_at = 1, outcome = 'succeeded' WHERE id = 'op_one'");
  });

  it('cannot append an event out of sequence, or one with an illegal transition', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await refused(nextEvent(id, { seq: 9, previous_seq: 8 }));
    await refused(nextEvent(id, { previous_state: 'creating' }));
    await refused(nextEvent(id, { state: 'killed' }));
    await refused(nextEvent(id, { position: 99_999 }));
  });

  it('cannot change or delete events', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await refused(write("UPDATE events SET state = 'lost' WHERE sandbox_id = $1", [id]));
    await refused(write('DELETE FROM events WHERE sandbox_id = $1', [id]));
  });

  it('cannot give a sandbox another state than its last event', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await refused(write("UPDATE sandboxes SET state = 'killed' WHERE id = $1", [id]));
    await refused(write("UPDATE sandboxes SET state = 'creating', seq = 1 WHERE id = $1", [id]));
    await refused(write('UPDATE sandboxes SET generation = 7 WHERE id = $1', [id]));
  });

  it('updates the sandbox with every event it appends', async () => {
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await nextEvent(id, { state: 'pausing' });
    const [row] = await world.db.query('SELECT state FROM sandboxes WHERE id = $1', [id]);
    expect(row).toEqual({ state: 'pausing' });
    await nextEvent(id, { state: 'running', id: `evt_${'y'.repeat(20)}` });
  });
});
