/**
 * Waking a build's preview: connect, lifetime, whatever lingers away, dev server, live (R28). Two attempts, five
 * seconds apart; a sandbox that is proved gone is not tried a second time (R32, R33).
 *
 * When the dev server came back with its memory and answers, it is kept: killing a healthy server would be a loss.
 */
import { type BuildResumed, type RESUME_ERRORS, type SandboxId, TorporError } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import type { BuildJob } from '../jobs/job.ts';
import { isLive, untilLive } from '../pipeline/live-check.ts';
import { platformErrorOf, proofOfAbsence } from './gone.ts';
import { project } from './pause.ts';

type ResumeErrorType = (typeof RESUME_ERRORS)[number];

export class ResumeFailed extends TorporError {
  readonly errorType: ResumeErrorType;
  /** What the platform itself said. */
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

/** What connecting failed with, told apart from what came after it. */
class NotConnected extends Error {
  override readonly name = 'NotConnected';
}

interface Awake {
  readonly sandboxId: SandboxId;
  readonly port: number;
}

export async function resumeBuild(
  ctx: BuildContext,
  job: BuildJob,
  awake: Awake,
  signal: AbortSignal,
): Promise<BuildResumed> {
  const { settings, clock } = ctx;
  const { sandboxId, port } = awake;
  for (let attempt = 1; ; attempt++) {
    try {
      await wake(ctx, job, awake, signal);
      // From whoever serves it now, never from the row (R40).
      const previewUrl = ctx.sandboxes.urlOf(sandboxId, port);
      await project(ctx, job, { sandboxPaused: 0, previewUrl }, 'The preview is awake.');
      return { preview_url: previewUrl, sandbox_id: sandboxId };
    } catch (thrown) {
      signal.throwIfAborted();
      const proof = thrown instanceof NotConnected ? proofOfAbsence(thrown.cause) : undefined;
      const gone = proof !== undefined;
      ctx.report('a preview did not wake', { jobId: job.id, attempt, gone, error: thrown });
      if (gone) throw new ResumeFailed('sandbox_expired', sandboxId, thrown, proof);
      if (attempt >= settings.resumeAttempts)
        throw new ResumeFailed('sandbox_unreachable', sandboxId, thrown);
    }
    await clock.sleep(settings.resumeGapMs, signal);
  }
}

async function wake(ctx: BuildContext, { org }: BuildJob, { sandboxId, port }: Awake, signal: AbortSignal) {
  const { sandboxes, settings } = ctx;
  try {
    await sandboxes.connect(org, sandboxId, signal);
    // After every connect: some providers give a fresh one only a few minutes (R29).
    await sandboxes.setLifetime(org, sandboxId, settings.lifetimeSeconds, signal);
  } catch (cause) {
    throw new NotConnected('The sandbox could not be connected to.', { cause });
  }
  if (await answers(ctx, sandboxId, port, signal)) return;
  await endLingering(ctx, org, sandboxId, signal);
  await sandboxes.startServices(org, sandboxId, signal);
  await untilLive(ctx, sandboxId, port, signal);
}

const GLANCE_MS = 5_000;

async function answers({ sandboxes }: BuildContext, id: SandboxId, port: number, signal: AbortSignal) {
  const order = { method: 'GET', path: '/', timeoutMs: GLANCE_MS } as const;
  return sandboxes.visit(id, port, order, signal).then(isLive, () => false);
}

/** What cannot be listed or ended is in nobody's way for certain, so nothing fails for it (R30). */
async function endLingering(
  ctx: BuildContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<void> {
  const pids = await ctx.sandboxes.processes(org, id, signal).catch(() => []);
  await Promise.allSettled(pids.map((pid) => ctx.sandboxes.endProcess(org, id, pid, signal)));
}
