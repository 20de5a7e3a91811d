/** Commands in the background: started, recorded as a job, and left running after the answer. */
import type { TrackedJob } from '@torpor/engine';
import type { BackgroundReply, ExecRequest, JobId, SandboxId } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';
import { type Command, callOptions, killEvenWhileStarting, startRequest, writeStdin } from './command.ts';
import { viewJobProcess } from './process-views.ts';
import type { SandboxConnection } from './sandbox-connection.ts';

/** Releases `connection` itself after the command has read its input. */
export async function startInBackground(
  ctx: RouteContext,
  request: FastifyRequest,
  id: SandboxId,
  connection: SandboxConnection,
  wanted: ExecRequest,
): Promise<BackgroundReply> {
  const { timeoutSeconds, ...rest } = wanted;
  const command: Command & { readonly tag: JobId } = {
    ...rest,
    tag: ctx.ids.next('job'),
    ...(timeoutSeconds === undefined ? {} : { timeoutMs: timeoutSeconds * 1_000 }),
  };
  const job = await startAndTrack(ctx, request, id, connection, command);
  void writeStdinAndRelease(ctx, connection, command);
  const process = viewJobProcess(job, connection.generation);
  return { jobId: job.id, process, autoResumed: connection.autoResumed };
}

/** A command that cannot be recorded is killed, because nobody would know of it. */
async function startAndTrack(
  { clock, engine }: RouteContext,
  request: FastifyRequest,
  sandboxId: SandboxId,
  connection: SandboxConnection,
  command: Command & { readonly tag: JobId },
): Promise<TrackedJob> {
  let started = false;
  try {
    const pid = await request.deadline.run(() => start(connection, command));
    started = true;
    const { generation } = connection;
    const process = { id: command.tag, sandboxId, generation, pid, cwd: command.cwd ?? null };
    return await request.deadline.run(() =>
      engine.trackProcess(request.identity.org, { ...process, command: command.command }),
    );
  } catch (thrown) {
    const mayRun = started || request.deadline.signal.aborted;
    if (mayRun) await killEvenWhileStarting(connection.agent, clock, command.tag, started);
    throw thrown;
  }
}

/** Gives up after `stallMs`: a process that does not read its input must not keep the sandbox awake. */
async function writeStdinAndRelease(
  { clock, settings }: RouteContext,
  connection: SandboxConnection,
  command: Command,
): Promise<void> {
  const enough = new AbortController();
  clock.sleep(settings.stallMs, enough.signal).then(
    () => enough.abort(),
    () => {},
  );
  await writeStdin(connection.agent, command, enough.signal);
  enough.abort();
  connection.release();
}

/** Reads the stream until the process runs, then closes it. The agent does not end a process with its stream. */
async function start({ agent }: SandboxConnection, command: Command): Promise<number> {
  const stream = new AbortController();
  // The agent enforces the timeout, because the server does not watch the process.
  const { timeoutMs: _, ...options } = callOptions(command, stream.signal);
  const limit = command.timeoutMs === undefined ? {} : { timeoutMs: command.timeoutMs };
  try {
    for await (const { event } of agent.process.start(startRequest(command), { ...options, ...limit })) {
      if (event?.event.case === 'start') return event.event.value.pid;
    }
  } finally {
    stream.abort();
  }
  throw new TorporError('unreachable', 'The connection to the sandbox broke while the command started.');
}
