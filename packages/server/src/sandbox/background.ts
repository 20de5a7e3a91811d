/** A command that goes on after the answer: started, written down, and left alone. */
import type { TrackedJob } from '@torpor/engine';
import type { BackgroundReply, ExecRequest, JobId, SandboxId } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteParts } from '../parts.ts';
import type { Awake } from './awake.ts';
import { type Command, callOptions, feed, killSurely, startRequest } from './command.ts';
import { viewJobProcess } from './process-views.ts';

/** Lets go of `inside` itself, once the command has its input. */
export async function startInBackground(
  parts: RouteParts,
  request: FastifyRequest,
  id: SandboxId,
  inside: Awake,
  wanted: ExecRequest,
): Promise<BackgroundReply> {
  const { timeoutSeconds, ...rest } = wanted;
  const command: Command & { readonly tag: JobId } = {
    ...rest,
    tag: parts.ids.next('job'),
    ...(timeoutSeconds === undefined ? {} : { timeoutMs: timeoutSeconds * 1_000 }),
  };
  const job = await startAndTrack(parts, request, id, inside, command);
  void feedAndRelease(parts, inside, command);
  const process = viewJobProcess(job, inside.generation);
  return { jobId: job.id, process, autoResumed: inside.autoResumed };
}

/** What cannot be written down does not go on, because nobody would know of it. */
async function startAndTrack(
  { clock, engine }: RouteParts,
  request: FastifyRequest,
  sandboxId: SandboxId,
  inside: Awake,
  command: Command & { readonly tag: JobId },
): Promise<TrackedJob> {
  let started = false;
  try {
    const pid = await request.bound.run(() => start(inside, command));
    started = true;
    const { generation } = inside;
    const process = { id: command.tag, sandboxId, generation, pid, cwd: command.cwd ?? null };
    return await request.bound.run(() =>
      engine.trackProcess(request.identity.org, { ...process, command: command.command }),
    );
  } catch (thrown) {
    const mayRun = started || request.bound.signal.aborted;
    if (mayRun) await killSurely(inside.agent, clock, command.tag, started);
    throw thrown;
  }
}

/** A process that does not read its input must not hold the sandbox awake for ever. */
async function feedAndRelease(
  { clock, settings }: RouteParts,
  inside: Awake,
  command: Command,
): Promise<void> {
  const enough = new AbortController();
  clock.sleep(settings.stallMs, enough.signal).then(
    () => enough.abort(),
    () => {},
  );
  await feed(inside.agent, command, enough.signal);
  enough.abort();
  inside.release();
}

/** Reads until it runs, then lets go of the stream: the agent does not end a process with its stream. */
async function start({ agent }: Awake, command: Command): Promise<number> {
  const stream = new AbortController();
  // The limit is the agent's to keep, because nobody here will be watching.
  const { timeoutMs: _, ...options } = callOptions(command, stream.signal);
  const limit = command.timeoutMs === undefined ? {} : { timeoutMs: command.timeoutMs };
  try {
    for await (const { event } of agent.process.start(startRequest(command), { ...options, ...limit })) {
      if (event?.event.case === 'start') return event.event.value.pid;
    }
  } finally {
    stream.abort();
  }
  throw new TorporError('unreachable', 'The sandbox was cut off while the command started.');
}
