/** Runs a process in a sandbox while a socket is open, and connects its input and output with the socket. */
import type { AgentClient, ProcessEvent_DataEvent } from '@torpor/envd';
import { OUTPUT_CHANNELS, type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';
import { callOptions, killEvenWhileStarting, killProcess, TimeLimit } from '../sandbox/command.ts';
import { endOf } from '../sandbox/command-end.ts';
import { interruptedCommandError } from '../sandbox/interrupted-command.ts';
import { connectToSandbox, type SandboxConnection } from '../sandbox/sandbox-connection.ts';
import type { Incoming, LiveSocket } from './live-socket.ts';

export interface ProcessPlan {
  readonly process: NonNullable<Parameters<AgentClient['process']['start']>[0]['process']>;
  /** Absent: the process has pipes instead of a terminal. */
  readonly terminal?: { readonly cols: number; readonly rows: number };
  readonly user?: string | undefined;
  readonly timeoutMs?: number | undefined;
  /** Whether a paused sandbox is woken; true unless given. */
  readonly wake?: boolean;
  /** Ends the process when it fires. */
  readonly until: AbortSignal;
}

/** Wakes the sandbox and runs the process until it ends or the socket is closed. */
export async function runSocketProcess(
  ctx: RouteContext,
  request: FastifyRequest,
  live: LiveSocket,
  id: SandboxId,
  plan: ProcessPlan,
): Promise<void> {
  const { wake = true } = plan;
  const connection = await connectToSandbox(ctx, request, id, { wake });
  request.deadline.release();
  try {
    await runProcess(ctx, request.id, live, connection, plan);
  } catch (thrown) {
    throw ctx.stopping.aborted
      ? thrown
      : await interruptedCommandError(ctx, request.identity.org, id, connection, thrown);
  } finally {
    connection.release();
  }
}

async function runProcess(
  { clock }: RouteContext,
  tag: string,
  live: LiveSocket,
  { agent, autoResumed }: SandboxConnection,
  plan: ProcessPlan,
): Promise<void> {
  const began = clock.monotonic();
  const over = new AbortController();
  const limit = new TimeLimit(clock, plan.timeoutMs, over.signal, async () => {
    await killProcess(agent, clock, tag);
  });
  let started = false;
  let ended = false;
  try {
    const signal = AbortSignal.any([live.closed, plan.until]);
    for await (const { event } of agent.process.start(startOf(plan, tag), callOptions(plan, signal))) {
      const received = event?.event;
      if (received?.case === 'start') {
        started = true;
        live.notice({ started: { pid: received.value.pid, autoResumed } });
        void forwardInputs(live, agent, tag, plan);
      } else if (received?.case === 'data') await forwardOutput(live, received.value);
      else if (received?.case === 'end') {
        ended = true;
        if (limit.passed) throw timeoutError(plan.timeoutMs ?? 0);
        const { exitCode: code, signal: by } = endOf(received.value);
        live.notice({ exit: { code, signal: by, durationMs: Math.round(clock.monotonic() - began) } });
      }
    }
    if (!ended)
      throw new TorporError('unreachable', 'The connection to the sandbox broke while the process ran.');
  } finally {
    over.abort();
    if (!ended) await killEvenWhileStarting(agent, clock, tag, started);
  }
}

function startOf({ process, terminal }: ProcessPlan, tag: string) {
  return { process, tag, stdin: true, ...(terminal === undefined ? {} : { pty: { size: terminal } }) };
}

/** Pipes have two channels; the first byte of a frame says which. A terminal has one channel. */
async function forwardOutput(live: LiveSocket, { output }: ProcessEvent_DataEvent): Promise<void> {
  if (output.case === 'pty') await live.send(output.value);
  if (output.case !== 'stdout' && output.case !== 'stderr') return;
  const frame = new Uint8Array(output.value.length + 1);
  frame[0] = OUTPUT_CHANNELS[output.case];
  frame.set(output.value, 1);
  await live.send(frame, output.value.length);
}

/** Forwards input in order. A process that reads no input, or has ended, is not an error. */
async function forwardInputs(
  live: LiveSocket,
  agent: AgentClient,
  tag: string,
  plan: ProcessPlan,
): Promise<void> {
  const process = selected(tag);
  const kind = plan.terminal === undefined ? 'stdin' : 'pty';
  for (let next = await live.next(); next !== undefined; next = await live.next()) {
    await forwardInput(agent, process, kind, next, live.closed).catch(() => {});
  }
}

async function forwardInput(
  agent: AgentClient,
  process: ReturnType<typeof selected>,
  kind: 'stdin' | 'pty',
  incoming: Incoming,
  signal: AbortSignal,
): Promise<unknown> {
  if ('bytes' in incoming) {
    const value = incoming.bytes;
    const input = kind === 'pty' ? { case: kind, value } : { case: kind, value };
    return agent.process.sendInput({ process, input: { input } }, { signal });
  }
  const { request } = incoming;
  if ('resize' in request)
    return agent.process.update({ process, pty: { size: request.resize } }, { signal });
  if ('closeStdin' in request && kind === 'stdin') return agent.process.closeStdin({ process }, { signal });
  return undefined;
}

function selected(tag: string) {
  return { selector: { case: 'tag' as const, value: tag } };
}

function timeoutError(ms: number): TorporError {
  return new TorporError('timeout', `The command was killed after ${ms / 1_000} s.`, {
    hint: 'Give it more time with "timeoutSeconds".',
  });
}
