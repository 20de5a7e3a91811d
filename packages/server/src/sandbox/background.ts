/** A command that goes on after the answer: started, written down, and left alone. */
import type { BackgroundReply, ExecRequest, SandboxId } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteParts } from '../parts.ts';
import type { Awake } from './awake.ts';
import { type Command, callOptions, feed, startRequest } from './command.ts';
import { viewTracked } from './process-views.ts';
import { insertTracked, type TrackedProcess } from './tracked-table.ts';

/** Lets go of `inside` itself, once the command has its input. */
export async function startInBackground(
  parts: RouteParts,
  request: FastifyRequest,
  id: SandboxId,
  inside: Awake,
  wanted: ExecRequest,
): Promise<BackgroundReply> {
  const { clock, db, settings } = parts;
  const { timeoutSeconds, ...rest } = wanted;
  const command: Command = {
    ...rest,
    tag: request.id,
    ...(timeoutSeconds === undefined ? {} : { timeoutMs: timeoutSeconds * 1_000 }),
  };
  const pid = await request.bound.run(() => start(inside, command));
  const process: TrackedProcess = {
    id: request.id,
    sandboxId: id,
    generation: inside.generation,
    pid,
    command: command.command,
    cwd: command.cwd ?? null,
    startedAt: clock.now(),
    ended: null,
    reason: null,
  };
  await request.bound.run(() => db.transaction((tx) => insertTracked(tx, process)));
  const enough = new AbortController();
  clock.sleep(settings.stallMs, enough.signal).then(
    () => enough.abort(),
    () => {},
  );
  void feed(inside.agent, command, enough.signal).finally(() => {
    enough.abort();
    inside.release();
  });
  return { process: viewTracked(process, 'running', null), autoResumed: inside.autoResumed };
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
