/** A build as callers see it. Whether it sleeps is asked of the sandbox; the row only follows (R38). */
import { type BuildStatus, STAGE_LABELS } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { hasDocs } from '../docs/read-docs.ts';
import type { BuildJob } from '../jobs/job.ts';
import { project } from './pause.ts';

export async function statusOf(ctx: BuildContext, job: BuildJob): Promise<BuildStatus> {
  const glance =
    job.status === 'ready' && job.sandboxId !== null
      ? await ctx.sandboxes.find(job.org, job.sandboxId)
      : undefined;
  const paused = glance === undefined ? job.sandboxPaused === 1 : glance.state === 'paused';
  const settled = glance?.state === 'paused' || glance?.state === 'running';
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
    snapshot_url: null,
    docs_ready: await hasDocs(ctx.db, job.id),
    created_at: new Date(job.createdAt).toISOString(),
    updated_at: new Date(job.updatedAt).toISOString(),
  };
}
