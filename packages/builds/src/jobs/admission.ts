/**
 * Admission: gives slots per user, per project and per organisation to waiting builds, in order of priority and number.
 *
 * A build with a slot is in the engine's queue; a build without one waits in its own row. A transaction that gives or
 * frees a slot holds the admission lock (the row of `build_gate`), so that two transactions cannot exceed a limit
 * together. It takes the admission lock before any job's row, so that no two transactions deadlock.
 */
import { enqueue, runningBuildQuotas, type Transaction } from '@torpor/engine';
import { type BuildContext, QUEUE } from '../context.ts';
import { planOf } from '../plans.ts';
import { type BuildJob, toJob } from './job.ts';
import { changeJob } from './transition.ts';

export async function lockAdmission(tx: Transaction): Promise<void> {
  await tx.query('SELECT id FROM build_gate WHERE id = 1 {FOR UPDATE}');
}

/** Takes the next job number. The caller holds the admission lock. */
export async function nextJobNumber(tx: Transaction): Promise<number> {
  const [row] = await tx.query<{ number: number }>(
    'UPDATE build_gate SET number = number + 1 WHERE id = 1 RETURNING number',
  );
  if (row === undefined) throw new Error('The table build_gate has no row.');
  return row.number;
}

/** Gives slots to all waiting builds that are within the limits. The caller holds the admission lock. */
export async function admit(ctx: BuildContext, tx: Transaction): Promise<void> {
  const slots = await takenSlots(tx);
  const quotas = await runningBuildQuotas(tx);
  for (const job of await lockWaiting(tx)) {
    const { perUser, perProject } = planOf(ctx.settings, job.userId);
    const user = slotKey(job.org, 'user', job.userId);
    const project = slotKey(job.org, 'project', job.projectId);
    const org = slotKey(job.org, 'org', '');
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
      // A number is far in the past as a time, so the build is always due; numbers keep the order.
      runAt: job.number,
      maxAttempts: ctx.settings.attempts,
    });
  }
}

/** Locks the rows, because a concurrent cancel may end one of the builds. */
async function lockWaiting(tx: Transaction): Promise<BuildJob[]> {
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
    const taken = [
      slotKey(org, 'user', user_id),
      slotKey(org, 'project', project_id),
      slotKey(org, 'org', ''),
    ];
    for (const slot of taken) {
      slots.set(slot, (slots.get(slot) ?? 0) + 1);
    }
  }
  return slots;
}

function slotKey(org: string, kind: 'user' | 'project' | 'org', id: string): string {
  return JSON.stringify([org, kind, id]);
}
