/** Ends a job: SIGTERM to its process group, and SIGKILL after a grace period. */
import type { Clock, TrackedJob } from '@torpor/engine';
import { type AgentClient, agentError, Signal } from '@torpor/envd';
import { hasJobEnded, type JobId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';
import { untilEnded } from './agent-processes.ts';
import { interruptedCommandError } from './interrupted-command.ts';
import { connectToSandbox } from './sandbox-connection.ts';

/** How long a killed process may take to end. */
const KILL_MS = 5_000;

/**
 * Wakes a paused sandbox, unless its `autoResume` is off. An ended job is returned unchanged, also one that did not
 * survive the wake.
 */
export async function endJob(
  ctx: RouteContext,
  request: FastifyRequest,
  id: JobId,
  graceMs: number,
): Promise<TrackedJob> {
  const { engine, clock } = ctx;
  const { org } = request.identity;
  const job = await engine.job(org, id);
  const { sandboxId } = job;
  request.logFields.sandboxId = sandboxId;
  if (hasJobEnded(job.state)) return job;
  const connection = await connectToSandbox(ctx, request, sandboxId);
  try {
    const awake = await engine.job(org, id);
    if (hasJobEnded(awake.state)) return awake;
    await request.deadline.run((signal) => terminate(connection.agent, clock, awake.tag, graceMs, signal));
    await engine.compareJobs(org, sandboxId);
    const ended = await engine.job(org, id);
    if (hasJobEnded(ended.state)) return ended;
  } catch (thrown) {
    throw await interruptedCommandError(ctx, org, sandboxId, connection, thrown);
  } finally {
    connection.release();
  }
  throw new TorporError('conflict', `Job ${id} could not be ended.`, {
    sandboxId,
    hint: 'Its process has ended, but another process listens on its port. End that one with a command.',
  });
}

async function terminate(
  agent: AgentClient,
  clock: Clock,
  tag: string,
  graceMs: number,
  signal: AbortSignal,
): Promise<void> {
  if (graceMs > 0) {
    await send(agent, tag, Signal.SIGTERM, signal);
    if (await endsWithin(agent, clock, tag, graceMs, signal)) return;
  }
  await send(agent, tag, Signal.SIGKILL, signal);
  if (await endsWithin(agent, clock, tag, KILL_MS, signal)) return;
  throw new TorporError('timeout', 'The process did not end after SIGKILL.');
}

async function send(agent: AgentClient, tag: string, sent: Signal, signal: AbortSignal): Promise<void> {
  const process = { selector: { case: 'tag' as const, value: tag } };
  await agent.process.sendSignal({ process, signal: sent }, { signal }).catch((thrown: unknown) => {
    // The process has already ended.
    if (agentError(thrown).code !== 'not_found') throw thrown;
  });
}

async function endsWithin(
  agent: AgentClient,
  clock: Clock,
  tag: string,
  ms: number,
  signal: AbortSignal,
): Promise<boolean> {
  const over = new AbortController();
  const both = AbortSignal.any([signal, over.signal]);
  const tooLate = clock.sleep(ms, both).then(
    () => false,
    () => false,
  );
  const ended = untilEnded(agent, tag, both).then(() => true);
  ended.catch(() => {});
  try {
    return await Promise.race([ended, tooLate]);
  } finally {
    over.abort();
  }
}
