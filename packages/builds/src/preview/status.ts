/** A build as callers see it. Whether it sleeps is asked of the sandbox; the row only follows (R38). */
import { type BuildStatus, STAGE_LABELS } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { hasDocs } from '../docs/read-docs.ts';
import type { BuildJob } from '../jobs/job.ts';
import { project } from './pause.ts';
import { lifeOf } from './sandbox-life.ts';

export async function statusOf(ctx: BuildContext, job: BuildJob): Promise<BuildStatus> {
  const life = await lifeOf(ctx, job);
  const state = life?.state ?? null;
  const { glance } = life ?? {};
  const paused = state === 'unknown' ? job.sandboxPaused === 1 : state === 'paused';
  const settled = state === 'paused' || glance?.state === 'running';
  if (settled && paused !== (job.sandboxPaused === 1)) {
    await project(
      ctx,
      job,
      { sandboxPaused: paused ? 1 : 0 },
      paused ? 'The preview sleeps.' : 'The preview is awake.',
    );
  }
  const endsAt = glance?.state === 'running' ? glance.endsAt : null;
  return {
    job_id: job.id,
    project_id: job.projectId,
    goal: job.goal,
    runner: job.runner,
    status: job.status,
    stage_label: STAGE_LABELS[job.status],
    message: job.statusMessage,
    sandbox_id: job.sandboxId,
    workspace_path: job.workspacePath,
    preview_url: job.previewUrl,
    build_version: job.buildVersion,
    error_message: job.errorMessage,
    debug_id: job.debugId,
    sandbox_expires_at: endsAt === null ? null : new Date(endsAt).toISOString(),
    sandbox_paused: paused,
    sandbox_state: state,
    sandbox_reason: life?.reason ?? null,
    expired: state === 'expired',
    snapshot_url: null,
    docs_ready: job.filesExpiredAt === null && (await hasDocs(ctx.db, job.id)),
    files_expired: job.filesExpiredAt !== null,
    logs_expired: job.logsExpiredAt !== null,
    created_at: new Date(job.createdAt).toISOString(),
    updated_at: new Date(job.updatedAt).toISOString(),
  };
}
