/** A process in a sandbox for as long as a socket is open: its output goes out, what comes in is its input. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Clock } from '@torpor/engine';
import {
  type AgentClient,
  asUser,
  type ProcessEvent_DataEvent,
  Signal,
  type StartRequestSchema,
} from '@torpor/envd';
import { OUTPUT_CHANNELS, type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteParts } from '../parts.ts';
import { fromAgent } from '../sandbox/agent-failure.ts';
import { awakeFor } from '../sandbox/awake.ts';
import { endOf } from '../sandbox/command-end.ts';
import type { Incoming, LiveSocket } from './live-socket.ts';

export interface Plan {
  readonly process: NonNullable<MessageInitShape<typeof StartRequestSchema>['process']>;
  /** Absent: pipes. */
  readonly terminal?: { readonly cols: number; readonly rows: number };
  readonly user?: string | undefined;
  readonly timeoutMs?: number | undefined;
  /** Ends the process when it fires. */
  readonly until: AbortSignal;
}

const KILL_MS = 3_000;

/** Says everything there is to say on the socket, failures too; the caller only closes it. */
export async function runSession(
  parts: RouteParts,
  request: FastifyRequest,
  live: LiveSocket,
  id: SandboxId,
  plan: Plan,
): Promise<void> {
  try {
    const inside = await awakeFor(parts, request, id);
    request.bound.release();
    try {
      await converse(parts, request.id, live, inside.agent, inside.autoResumed, plan);
    } finally {
      inside.release();
    }
  } catch (thrown) {
    const error = plan.until.aborted ? stopped() : fromAgent(thrown, id);
    live.notice({ error: { ...error.toBody(), requestId: request.id } });
  }
}

async function converse(
  { clock }: RouteParts,
  tag: string,
  live: LiveSocket,
  agent: AgentClient,
  autoResumed: boolean,
  plan: Plan,
): Promise<void> {
  const began = clock.monotonic();
  const signal = AbortSignal.any([live.closed, plan.until]);
  const over = new AbortController();
  const limit = timeLimit(clock, plan.timeoutMs, over.signal, () => kill(agent, tag));
  const start = {
    process: plan.process,
    tag,
    stdin: true,
    ...(plan.terminal === undefined ? {} : { pty: { size: plan.terminal } }),
  };
  let ended = false;
  try {
    const headers = plan.user === undefined ? {} : { headers: asUser(plan.user) };
    for await (const { event } of agent.process.start(start, { signal, ...headers })) {
      const happened = event?.event;
      if (happened?.case === 'start') {
        live.notice({ started: { pid: happened.value.pid, autoResumed } });
        void feed(live, agent, tag, plan);
      } else if (happened?.case === 'data') await passOn(live, happened.value);
      else if (happened?.case === 'end') {
        ended = true;
        if (limit.passed) throw tooLong(plan.timeoutMs ?? 0);
        const { exitCode: code, signal: by } = endOf(happened.value);
        live.notice({ exit: { code, signal: by, durationMs: Math.round(clock.monotonic() - began) } });
      }
    }
    if (!ended) throw new TorporError('unreachable', 'The sandbox was cut off while the process ran.');
  } finally {
    over.abort();
    if (!ended) await kill(agent, tag);
  }
}

function timeLimit(clock: Clock, ms: number | undefined, over: AbortSignal, onPassed: () => Promise<void>) {
  const limit = { passed: false };
  if (ms === undefined) return limit;
  clock.sleep(ms, over).then(
    () => {
      limit.passed = true;
      return onPassed();
    },
    () => {},
  );
  return limit;
}

/** Pipes have two channels, and the first byte says which; a terminal has one. */
async function passOn(live: LiveSocket, { output }: ProcessEvent_DataEvent): Promise<void> {
  if (output.case === 'pty') await live.send(output.value);
  if (output.case !== 'stdout' && output.case !== 'stderr') return;
  const frame = new Uint8Array(output.value.length + 1);
  frame[0] = OUTPUT_CHANNELS[output.case];
  frame.set(output.value, 1);
  await live.send(frame, output.value.length);
}

/** One piece after the other. A process that takes no input, or has ended, is no failure. */
async function feed(live: LiveSocket, agent: AgentClient, tag: string, plan: Plan): Promise<void> {
  const process = selected(tag);
  const kind = plan.terminal === undefined ? 'stdin' : 'pty';
  for (let next = await live.next(); next !== undefined; next = await live.next()) {
    await take(agent, process, kind, next, live.closed).catch(() => {});
  }
}

async function take(
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

/** With everything in its group. What cannot be reached cannot be killed, and is not waited for. */
async function kill(agent: AgentClient, tag: string): Promise<void> {
  const request = { process: selected(tag), signal: Signal.SIGKILL };
  await agent.process.sendSignal(request, { timeoutMs: KILL_MS }).catch(() => {});
}

function selected(tag: string) {
  return { selector: { case: 'tag' as const, value: tag } };
}

function tooLong(ms: number): TorporError {
  return new TorporError('timeout', `The command was killed after ${ms / 1_000} s.`, {
    hint: 'Give it more time with "timeoutSeconds".',
  });
}

function stopped(): TorporError {
  return new TorporError('unreachable', 'The server is stopping.', { retryAfterMs: 1_000 });
}
