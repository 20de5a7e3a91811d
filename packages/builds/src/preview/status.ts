/** The status of a build for callers. Whether its preview is paused is read from the sandbox; the row follows (R38). */
import { type BuildStatus, STAGE_LABELS } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { hasDocs } from '../docs/read-docs.ts';
import type { BuildJob } from '../jobs/job.ts';
import { recordPreviewState } from './pause.ts';
import { previewStateOf } from './preview-state.ts';

export async function statusOf(ctx: BuildContext, job: BuildJob): Promise<BuildStatus> {
  const preview = await previewStateOf(ctx, job);
  const state = preview?.state ?? null;
  const { summary } = preview ?? {};
  const paused = state === 'unknown' ? job.sandboxPaused === 1 : state === 'paused';
  const isKnown = state === 'paused' || summary?.state === 'running';
  if (isKnown && paused !== (job.sandboxPaused === 1)) {
    await recordPreviewState(
      ctx,
      job,
      { sandboxPaused: paused ? 1 : 0 },
      paused ? 'The preview is paused.' : 'The preview is running.',
    );
  }
  const endsAt = summary?.state === 'running' ? summary.endsAt : null;
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
    sandbox_reason: preview?.reason ?? null,
    expired: state === 'expired',
    snapshot_url: null,
    docs_ready: job.filesExpiredAt === null && (await hasDocs(ctx.db, job.id)),
    files_expired: job.filesExpiredAt !== null,
    logs_expired: job.logsExpiredAt !== null,
    created_at: new Date(job.createdAt).toISOString(),
    updated_at: new Date(job.updatedAt).toISOString(),
  };
}
