import { migrate } from '@torpor/database';
import { ALL_MIGRATIONS } from '@torpor/server/migrations';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds, type FreshDatabase, freshDatabase } from '../../testing/fresh-database.ts';
import { migrateBelow } from '../../testing/migrate-below.ts';
import { allJobs } from './job.ts';

const SERVICES = '[{"name":"web","command":"serve","cwd":"/app"},{"name":"worker","command":"work"}]';

describe.each(databaseKinds)('services and processes from before there were jobs, on %s', (kind) => {
  let fresh: FreshDatabase;

  beforeEach(async () => {
    fresh = await freshDatabase(kind, { migrated: false });
    await migrateBelow(fresh.db, 9);
  });
  afterEach(() => fresh.dispose());

  /** A sandbox with two services, as the engine wrote it before there were jobs. */
  const sandbox = (id: `sbx_${string}`, states: readonly string[], lost: string) =>
    fresh.db.transaction(async (tx) => {
      await tx.query(
        `INSERT INTO sandboxes (id, org, runtime, config, metadata, on_timeout, idle_ms, on_idle, state, seq,
           generation, lost, observed_at, evidence, created_at)
         VALUES ($1, 'org', 'memory', $2, '{}', 'pause', 1, 'keep', 'creating', 0, 0, $3, 50, 'ledger', 10)`,
        [id, `{"services":${SERVICES},"env":{}}`, lost],
      );
      const checkpoint = `ckpt_of_${id}`;
      await tx.query(
        `INSERT INTO checkpoints (id, org, sandbox_id, runtime, state, sealed, has_files, has_memory, needs, external,
           replayable, recovered, health, created_at, seq)
         VALUES ($1, 'org', $2, 'memory', 'sealed', 1, 1, 1, '{}', 0, 1, 0, 'ok', 0, 1)`,
        [checkpoint, id],
      );
      for (const [i, state] of states.entries()) {
        const [head] = await tx.query<{ position: number }>(
          'UPDATE ledger_head SET position = position + 1 RETURNING position',
        );
        await tx.query(
          `INSERT INTO events (sandbox_id, seq, position, id, org, at, type, previous_seq, previous_state, state,
             generation, checkpoint_id, data)
           VALUES ($1, $2, $3, $4, 'org', 1, 'sandbox.created', $5, $6, $7, 2, $8, '{}')`,
          [
            id,
            i + 1,
            head?.position ?? 0,
            `evt_${id}_${i}`,
            i === 0 ? null : i,
            states[i - 1] ?? null,
            state,
            state === 'paused' ? checkpoint : null,
          ],
        );
      }
    });
  const process = (letter: string, sandboxId: string, ended: string | null, reason: string | null) =>
    fresh.db.transaction((tx) =>
      tx.query(
        `INSERT INTO background_processes (id, sandbox_id, generation, pid, command, started_at, ended, reason)
         VALUES ($1, $2, 2, 7, $3, 20, $4, $5)`,
        [`req_${letter.repeat(20)}`, sandboxId, letter, ended, reason],
      ),
    );

  it('become jobs with the state they had (R17, R98)', async () => {
    await sandbox('sbx_runs', ['creating', 'running'], '[]');
    await sandbox('sbx_sleeps', ['creating', 'running', 'pausing', 'paused'], '["connections"]');
    await sandbox('sbx_files', ['creating', 'running', 'pausing', 'paused'], '["processes","connections"]');
    await sandbox('sbx_killed', ['creating', 'running', 'killing', 'killed'], '[]');
    for (const id of ['runs', 'sleeps', 'files', 'killed'])
      await process(id.charAt(0), `sbx_${id}`, null, null);
    await process('a', 'sbx_runs', 'exited', 'it ended with exit code 3');
    await process('b', 'sbx_runs', 'exited', 'it was ended by SIGTERM');
    await process('c', 'sbx_runs', 'exited', 'it ended');
    expect(await migrate(fresh.db, ALL_MIGRATIONS)).toContain('0009_jobs');
    const stateOfJobs = async (id: `sbx_${string}`) =>
      Object.fromEntries(
        (await allJobs(fresh.db, id)).map(({ name, command, state, exitCode, lostReason }) => [
          name ?? command,
          [state, exitCode ?? lostReason].filter((part) => part !== null).join(' '),
        ]),
      );
    expect(await stateOfJobs('sbx_runs')).toEqual({
      web: 'running',
      worker: 'running',
      r: 'running',
      a: 'completed 3',
      b: 'completed 143',
      c: 'lost not_found',
    });
    expect(await stateOfJobs('sbx_sleeps')).toEqual({
      web: 'suspended',
      worker: 'suspended',
      s: 'suspended',
    });
    const lost = 'lost files_only_pause';
    expect(await stateOfJobs('sbx_files')).toEqual({ web: lost, worker: lost, f: lost });
    expect((await stateOfJobs('sbx_killed'))['k']).toBe('lost sandbox_killed');
    // A suspended process is found again by the tag that its agent knows, and a service by its job's id.
    const captured = await fresh.db.query('SELECT checkpoint_id, tag FROM checkpoint_jobs ORDER BY tag');
    expect(captured).toMatchObject([
      { checkpoint_id: 'ckpt_of_sbx_sleeps', tag: `req_${'s'.repeat(20)}` },
      { tag: 'service:web' },
      { tag: 'service:worker' },
    ]);
    const [row] = await fresh.db.query<{ config: string }>(
      "SELECT config FROM sandboxes WHERE id = 'sbx_runs'",
    );
    const { services } = JSON.parse(row?.config ?? '');
    const jobs = await allJobs(fresh.db, 'sbx_runs');
    expect(services).toEqual([
      { name: 'web', command: 'serve', cwd: '/app', jobId: jobs.find(({ name }) => name === 'web')?.id },
      { name: 'worker', command: 'work', jobId: jobs.find(({ name }) => name === 'worker')?.id },
    ]);
    expect(services[0].jobId).toMatch(/^job_[a-z0-9]{20}$/);
  });
});
