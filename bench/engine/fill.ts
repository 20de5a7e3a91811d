/** Inserts many sandboxes into the tables, each with its events and its operation, under the usual constraints. */
import { type Database, randomIds } from '@torpor/engine';

const PER_TRANSACTION = 2_000;

/** Inserts sandboxes of another organisation than the measured one. */
export async function fill(db: Database, count: number): Promise<void> {
  const [template] = await db.query<{ checkpoint_id: string }>('SELECT checkpoint_id FROM templates LIMIT 1');
  for (let done = 0; done < count; done += PER_TRANSACTION) {
    await db.transaction(async (tx) => {
      for (let i = done; i < Math.min(count, done + PER_TRANSACTION); i++) {
        const id = randomIds.next('sbx');
        const operation = randomIds.next('op');
        await tx.query(
          `INSERT INTO sandboxes (id, org, runtime, template, config, metadata, on_timeout, idle_ms, on_idle, state, seq,
             generation, lost, observed_at, evidence, created_at)
           VALUES ($1, 'others', 'memory', 'base', '{}', '{}', 'pause', 300000, 'keep', 'creating', 0, 0, '[]', 0,
             'ledger', $2)`,
          [id, i],
        );
        await tx.query(
          `INSERT INTO operations (id, org, sandbox_id, kind, request, reason, owner, fence, started_at, deadline_at,
             ended_at, outcome, result)
           VALUES ($1, 'others', $2, 'create', '{}', 'request', 'filler', 1, $3, $3, $3, 'succeeded', '{}')`,
          [operation, id, i],
        );
        await event(tx, id, 1, 'creating', template?.checkpoint_id ?? null);
        await event(tx, id, 2, 'failed', null);
      }
    });
  }
}

type Tx = Parameters<Parameters<Database['transaction']>[0]>[0];

async function event(tx: Tx, id: string, seq: number, state: string, baseId: string | null): Promise<void> {
  const [head] = await tx.query<{ position: number }>(
    'UPDATE ledger_head SET position = position + 1 RETURNING position',
  );
  await tx.query(
    `INSERT INTO events (sandbox_id, seq, position, id, org, at, type, previous_seq, previous_state, state, generation,
       base_id, data)
     VALUES ($1, $2, $3, $4, 'others', 0, 'sandbox.created', $5, $6, $7, 1, $8, '{}')`,
    [
      id,
      seq,
      head?.position ?? 0,
      randomIds.next('evt'),
      seq === 1 ? null : seq - 1,
      seq === 1 ? null : 'creating',
      state,
      baseId,
    ],
  );
}
