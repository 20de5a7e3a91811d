/**
 * Who may work now: slots per user, per project and per organisation, given in the order of the line.
 *
 * A job that has a slot stands in the engine's queue, by priority and then by number; one that has none waits in
 * its own row. Whoever gives or frees a slot holds the gate, so that no cap is exceeded by two at once, and takes
 * it before any job's row, so that no two wait for each other.
 */
import { enqueue, runningBuildQuotas, type Transaction } from '@torpor/engine';
import { type BuildContext, QUEUE } from '../context.ts';
import { planOf } from '../plans.ts';
import { type BuildJob, toJob } from './job.ts';
import { changeJob } from './transition.ts';

export async function lockGate(tx: Transaction): Promise<void> {
  await tx.query('SELECT id FROM build_gate WHERE id = 1 {FOR UPDATE}');
}

/** The next place in the line; the gate is held. */
export async function takeNumber(tx: Transaction): Promise<number> {
  const [row] = await tx.query<{ number: number }>(
    'UPDATE build_gate SET number = number + 1 WHERE id = 1 RETURNING number',
  );
  if (row === undefined) throw new Error('The gate of the builds has no row.');
  return row.number;
}

/** Gives slots to whoever waits and fits; the gate is held. */
export async function admit(ctx: BuildContext, tx: Transaction): Promise<void> {
  const slots = await takenSlots(tx);
  const quotas = await runningBuildQuotas(tx);
  for (const job of await waiting(tx)) {
    const { perUser, perProject } = planOf(ctx.settings, job.userId);
    const user = slotOf(job.org, 'user', job.userId);
    const project = slotOf(job.org, 'project', job.projectId);
    const org = slotOf(job.org, 'org', '');
    const limits = [
      [user, perUser],
      [project, perProject],
      [org, quotas.get(job.org) ?? Number.POSITIVE_INFINITY],
    ] as const;
    if (limits.some(([slot, limit]) => (slots.get(slot) ?? 0) >= limit)) continue;
    for (const [slot] of limits) slots.set(slot, (slots.get(slot) ?? 0) + 1);
    const now = ctx.clock.now();
    await changeJob(tx, job, { admittedAt: now });
    await enqueue(tx, {
      id: job.id,
      queue: QUEUE,
      payload: null,
      now,
      priority: job.priority,
      // Always due, and in the order of the line.
      runAt: job.number,
      maxAttempts: ctx.settings.attempts,
    });
  }
}

/** Locked, because a cancel may be about to end one. */
async function waiting(tx: Transaction): Promise<BuildJob[]> {
  const rows = await tx.query(
    `SELECT * FROM build_jobs WHERE status = 'queued' AND admitted_at IS NULL
     ORDER BY priority, number {FOR UPDATE}`,
  );
  return rows.map(toJob);
}

async function takenSlots(tx: Transaction): Promise<Map<string, number>> {
  const rows = await tx.query<{ org: string; user_id: string; project_id: string }>(
    `SELECT org, user_id, project_id FROM build_jobs
     WHERE completed_at IS NULL AND admitted_at IS NOT NULL AND status <> 'scheduled'`,
  );
  const slots = new Map<string, number>();
  for (const { org, user_id, project_id } of rows) {
    const taken = [slotOf(org, 'user', user_id), slotOf(org, 'project', project_id), slotOf(org, 'org', '')];
    for (const slot of taken) {
      slots.set(slot, (slots.get(slot) ?? 0) + 1);
    }
  }
  return slots;
}

function slotOf(org: string, kind: 'user' | 'project' | 'org', id: string): string {
  return JSON.stringify([org, kind, id]);
}
