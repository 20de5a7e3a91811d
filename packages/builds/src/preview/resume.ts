/**
 * Resumes a build's preview: connect, set the lifetime, kill left-over processes, start the dev server, wait until it
 * answers (R28). Two attempts, five seconds apart; a sandbox that is proved lost is not tried again (R32, R33).
 *
 * When the dev server was resumed with its memory and answers, it is kept: killing it would lose its state.
 */
import { type BuildResumed, type RESUME_ERRORS, type SandboxId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import { isLive, waitUntilLive } from '../pipeline/live-check.ts';
import { recordPreviewState } from './pause.ts';
import { permanentFailureOf, platformErrorOf } from './permanent-failure.ts';

type ResumeErrorType = (typeof RESUME_ERRORS)[number];

export class ResumeFailed extends TorporError {
  readonly errorType: ResumeErrorType;
  /** The error of the platform. */
  readonly platform: TorporError;

  constructor(
    errorType: ResumeErrorType,
    sandboxId: SandboxId | undefined,
    cause: unknown,
    platform: TorporError = platformErrorOf(cause),
  ) {
    const expired = errorType === 'sandbox_expired';
    super(
      expired ? 'expired' : 'unreachable',
      expired
        ? 'The sandbox has expired. Rebuild to get a new preview.'
        : 'The sandbox could not be reached. Try again.',
      { ...(sandboxId === undefined ? {} : { sandboxId }), cause },
    );
    this.errorType = errorType;
    this.platform = platform;
  }
}

/** Marks an error of connecting, as opposed to a later one. */
class NotConnected extends Error {
  override readonly name = 'NotConnected';
}

interface PreviewTarget {
  readonly sandboxId: SandboxId;
  readonly port: number;
}

export async function resumeBuild(
  ctx: BuildContext,
  job: BuildJob,
  target: PreviewTarget,
  signal: AbortSignal,
): Promise<BuildResumed> {
  const { settings, clock } = ctx;
  const { sandboxId, port } = target;
  for (let attempt = 1; ; attempt++) {
    try {
      await resumePreview(ctx, job, target, signal);
      // The URL of the present host, not the one in the row (R40).
      const previewUrl = ctx.sandboxes.urlOf(sandboxId, port);
      await recordPreviewState(ctx, job, { sandboxPaused: 0, previewUrl }, 'The preview is running.');
      return { preview_url: previewUrl, sandbox_id: sandboxId };
    } catch (thrown) {
      signal.throwIfAborted();
      const proof = thrown instanceof NotConnected ? permanentFailureOf(thrown.cause) : undefined;
      const gone = proof !== undefined;
      ctx.report('a preview could not be resumed', { jobId: job.id, attempt, gone, error: thrown });
      if (gone) throw new ResumeFailed('sandbox_expired', sandboxId, thrown, proof);
      if (attempt >= settings.resumeAttempts)
        throw new ResumeFailed('sandbox_unreachable', sandboxId, thrown);
    }
    await clock.sleep(settings.resumeGapMs, signal);
  }
}

async function resumePreview(
  ctx: BuildContext,
  { org }: BuildJob,
  { sandboxId, port }: PreviewTarget,
  signal: AbortSignal,
) {
  const { sandboxes, settings } = ctx;
  try {
    await sandboxes.connect(org, sandboxId, signal);
    // After every connect, because some providers reset the lifetime to a few minutes (R29).
    await sandboxes.setLifetime(org, sandboxId, settings.lifetimeSeconds, signal);
  } catch (cause) {
    throw new NotConnected('The sandbox could not be connected to.', { cause });
  }
  if (await isAnswering(ctx, sandboxId, port, signal)) return;
  await killLeftoverProcesses(ctx, org, sandboxId, signal);
  await sandboxes.startServices(org, sandboxId, signal);
  await waitUntilLive(ctx, sandboxId, port, signal);
}

const QUICK_CHECK_MS = 5_000;

async function isAnswering({ sandboxes }: BuildContext, id: SandboxId, port: number, signal: AbortSignal) {
  const request = { method: 'GET', path: '/', timeoutMs: QUICK_CHECK_MS } as const;
  return sandboxes.requestPreview(id, port, request, signal).then(isLive, () => false);
}

/** Best effort: the resume does not fail when processes cannot be listed or killed (R30). */
async function killLeftoverProcesses(
  ctx: BuildContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<void> {
  const pids = await ctx.sandboxes.processes(org, id, signal).catch(() => []);
  await Promise.allSettled(pids.map((pid) => ctx.sandboxes.endProcess(org, id, pid, signal)));
}
