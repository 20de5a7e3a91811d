/** Runs one command in a sandbox and streams its events from start to end. */
import type { Clock } from '@torpor/engine';
import { type AgentClient, asUser, type ProcessEvent, Signal } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { type CommandEnd, endOf } from './command-end.ts';

export interface Command {
  readonly command: string;
  readonly cwd?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly user?: string | undefined;
  readonly stdin?: string | undefined;
  /** Identifies the process, also when its start event did not arrive. */
  readonly tag: string;
  readonly timeoutMs?: number | undefined;
}

export type CommandEvent =
  | { readonly is: 'start'; readonly pid: number }
  | { readonly is: 'stdout' | 'stderr'; readonly bytes: Uint8Array }
  | ({ readonly is: 'end' } & CommandEnd);

/** Not every sandbox has bash. Checking inside the sandbox saves a round trip. */
const LOGIN_SHELL = '[ -x /bin/bash ] && exec /bin/bash -l -c "$1"; exec /bin/sh -l -c "$1"';

/** The agent's own limit is later than the server's. It counts only when the server dies. */
const AGENT_GRACE_MS = 5_000;
/** How long a killed process may take to end. */
const KILL_MS = 3_000;
const START_TRIES = 5;
const START_MS = 200;

export function startRequest({ command, cwd, env = {}, stdin, tag }: Command) {
  return {
    process: {
      cmd: '/bin/sh',
      args: ['-c', LOGIN_SHELL, 'sh', command],
      envs: { ...env },
      ...(cwd === undefined ? {} : { cwd }),
    },
    stdin: stdin !== undefined,
    tag,
  };
}

export function callOptions({ user, timeoutMs }: Pick<Command, 'user' | 'timeoutMs'>, signal: AbortSignal) {
  return {
    signal,
    ...(user === undefined ? {} : { headers: asUser(user) }),
    ...(timeoutMs === undefined ? {} : { timeoutMs: timeoutMs + AGENT_GRACE_MS }),
  };
}

/** The command line of a process that `startRequest` or an E2B client started. */
export function commandOf({ cmd, args }: { readonly cmd: string; readonly args: readonly string[] }): string {
  if (cmd === '/bin/sh' && args[1] === LOGIN_SHELL) return args[3] ?? '';
  if (/^\/bin\/(ba)?sh$/.test(cmd) && args.at(-2) === '-c') return args.at(-1) ?? '';
  return [cmd, ...args].join(' ');
}

/**
 * Runs the command to its end. When the reader stops, when `signal` fires, or at the timeout, the command and its
 * process group are killed. The timeout ends the stream with the error `timeout`.
 */
export async function* runCommand(
  agent: AgentClient,
  clock: Clock,
  command: Command,
  signal: AbortSignal,
): AsyncGenerator<CommandEvent> {
  signal.throwIfAborted();
  const stream = new AbortController();
  const stopTimer = new AbortController();
  const limit = new TimeLimit(clock, command.timeoutMs, stopTimer.signal, async () => {
    await killProcess(agent, clock, command.tag);
    await clock.sleep(KILL_MS, stopTimer.signal);
    stream.abort();
  });
  let started = false;
  let ended = false;
  try {
    const options = callOptions(command, AbortSignal.any([signal, stream.signal]));
    for await (const { event } of agent.process.start(startRequest(command), options)) {
      const known = toCommandEvent(event);
      if (known === undefined) continue;
      if (known.is === 'start') {
        started = true;
        void writeStdin(agent, command, options.signal);
      }
      if (known.is === 'end') ended = true;
      if (known.is === 'end' && limit.passed) break;
      yield known;
    }
    if (limit.passed) throw limit.error();
    if (!ended)
      throw new TorporError('unreachable', 'The connection to the sandbox broke while the command ran.');
  } catch (thrown) {
    throw limit.passed ? limit.error() : thrown;
  } finally {
    stopTimer.abort();
    if (!ended && (started || signal.aborted || limit.passed))
      await killEvenWhileStarting(agent, clock, command.tag, started);
  }
}

/** Calls back once when the time is over. Undefined is no limit. */
export class TimeLimit {
  passed = false;
  readonly #ms: number;

  constructor(clock: Clock, ms: number | undefined, stop: AbortSignal, onPassed: () => Promise<void>) {
    this.#ms = ms ?? 0;
    if (ms === undefined) return;
    clock
      .sleep(ms, stop)
      .then(() => {
        this.passed = true;
        return onPassed();
      })
      .catch(() => {});
  }

  error(): TorporError {
    return new TorporError('timeout', `The command was killed after ${this.#ms / 1_000} s.`, {
      hint: 'Give it more time with "timeoutSeconds", or run it with "background".',
    });
  }
}

function toCommandEvent(received: ProcessEvent | undefined): CommandEvent | undefined {
  const event = received?.event;
  switch (event?.case) {
    case 'start':
      return { is: 'start', pid: event.value.pid };
    case 'data': {
      const { output } = event.value;
      return output.case === 'stdout' || output.case === 'stderr'
        ? { is: output.case, bytes: output.value }
        : undefined;
    }
    case 'end':
      return { is: 'end', ...endOf(event.value) };
    default:
      return undefined;
  }
}

const STDIN_CHUNK_BYTES = 256 * 1024;

/**
 * Writes the input while the output is read, because a command may block on output before it reads its input. Never
 * fails: a command that does not read its input, or has ended, is not an error.
 */
export async function writeStdin(
  agent: AgentClient,
  { stdin, tag }: Command,
  signal: AbortSignal,
): Promise<void> {
  if (stdin === undefined) return;
  const process = { selector: { case: 'tag' as const, value: tag } };
  const bytes = new TextEncoder().encode(stdin);
  try {
    for (let at = 0; at < bytes.length; at += STDIN_CHUNK_BYTES) {
      const value = bytes.subarray(at, at + STDIN_CHUNK_BYTES);
      await agent.process.sendInput({ process, input: { input: { case: 'stdin', value } } }, { signal });
    }
    await agent.process.closeStdin({ process }, { signal });
  } catch {
    // Not an error; see the comment of this function.
  }
}

/** A process whose start event has not arrived may still be starting, so the kill is repeated. */
export async function killEvenWhileStarting(
  agent: AgentClient,
  clock: Clock,
  tag: string,
  started: boolean,
): Promise<void> {
  for (let tries = started ? 1 : START_TRIES; tries > 0; tries--) {
    if (await killProcess(agent, clock, tag)) return;
    if (tries > 1) await clock.sleep(START_MS);
  }
}

/** Returns whether a process was killed. Never fails: an unreachable agent is not waited for. */
export async function killProcess(agent: AgentClient, clock: Clock, tag: string): Promise<boolean> {
  const done = new AbortController();
  const process = { selector: { case: 'tag' as const, value: tag } };
  const killing = agent.process.sendSignal({ process, signal: Signal.SIGKILL }).then(
    () => true,
    () => false,
  );
  const timeout = clock.sleep(KILL_MS, done.signal).then(
    () => true,
    () => true,
  );
  const killed = await Promise.race([killing, timeout]);
  done.abort();
  return killed;
}
