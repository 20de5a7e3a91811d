/**
 * Starts system programs from a small process beside the server. A server that forks by itself stands still until the
 * new program has begun to run, and every request to every sandbox stands still with it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { TorporError } from '@torpor/protocol';
import { minimalEnvironment } from './environment.ts';

export interface LaunchRequest {
  readonly program: string;
  /** Passed unchanged; no shell reads them. */
  readonly args: readonly string[];
  /** The whole environment of the program. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly input?: string;
  /** The program waits for a line on stdin, which `sendLine` writes. */
  readonly waitsForLine?: boolean;
  /**
   * A file that receives stdout and stderr. Needed for programs that leave processes running: these inherit the output,
   * so the end of a pipe would not be the end of the program.
   */
  readonly outputFile?: string;
}

export interface ProgramResult {
  /** Null when a signal ended the program. */
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** `failed` is the errno code of a program that could not be started. */
export type LaunchOutcome = ProgramResult | { readonly failed: string };

/** Messages to the launcher process. The numbers are the ids of launched programs. */
export type ToLauncher =
  | { readonly id: number; readonly request: LaunchRequest }
  | { readonly kill: number }
  | { readonly sendLine: number };

export interface RunningProgram {
  /** Resolves with any exit status; rejects when the program could not be started. */
  readonly ended: Promise<ProgramResult>;
  sendLine(): void;
  kill(): void;
}

interface FromLauncher {
  readonly id: number;
  readonly outcome: LaunchOutcome;
}

const LAUNCHER_PROGRAM = fileURLToPath(new URL('./launcher-process.mjs', import.meta.url));
/** Keep the launcher process small. */
const NODE_FLAGS = ['--single-threaded', '--max-semi-space-size=1'];

interface LauncherProcess {
  readonly child: ChildProcess;
  readonly waiting: Map<number, PromiseWithResolvers<LaunchOutcome>>;
}

export class Launcher {
  readonly #enterCommand: readonly string[];
  #process: LauncherProcess | undefined;
  #lastId = 0;

  /** `enterCommand` starts the launcher process, for example `nsenter …` to run it in another namespace. */
  constructor(enterCommand: readonly string[] = []) {
    this.#enterCommand = enterCommand;
  }

  /**
   * Resolves with any exit status; rejects when the program could not be started. An abort kills the program, and the
   * promise settles when the program has ended. If the launcher process itself is killed, the promise rejects with an
   * internal error and the program continues, as it would after a crash of the server.
   */
  async launch(request: LaunchRequest, signal?: AbortSignal): Promise<ProgramResult> {
    const running = this.start(request);
    const kill = () => running.kill();
    signal?.addEventListener('abort', kill);
    if (signal?.aborted === true) kill();
    try {
      return await running.ended;
    } finally {
      signal?.removeEventListener('abort', kill);
    }
  }

  start(request: LaunchRequest): RunningProgram {
    const id = ++this.#lastId;
    this.#process ??= this.#startProcess();
    const { child, waiting } = this.#process;
    const outcome = Promise.withResolvers<LaunchOutcome>();
    const send = (message: ToLauncher) =>
      child.send(message, (error) => error && outcome.reject(launcherEnded(error)));
    waiting.set(id, outcome);
    // Only a launcher with running programs keeps this process alive.
    child.channel?.ref();
    send({ id, request });
    const end = async () => {
      try {
        const result = await outcome.promise;
        if (!('failed' in result)) return result;
        throw Object.assign(new Error(`${request.program}: ${result.failed}`), { code: result.failed });
      } finally {
        waiting.delete(id);
        if (waiting.size === 0) child.channel?.unref();
      }
    };
    return { ended: end(), sendLine: () => send({ sendLine: id }), kill: () => send({ kill: id }) };
  }

  /** Ends the launcher process. The next request starts another one. */
  close(): void {
    if (this.#process?.child.connected === true) this.#process.child.disconnect();
    this.#process = undefined;
  }

  #startProcess(): LauncherProcess {
    const [program, ...args] = [...this.#enterCommand, process.execPath, ...NODE_FLAGS, LAUNCHER_PROGRAM];
    const child = spawn(program as string, args, {
      env: minimalEnvironment(),
      cwd: '/',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      // In a session of its own, so that Ctrl-C in the terminal reaches only the server, which shuts down in order.
      detached: true,
    });
    const started: LauncherProcess = { child, waiting: new Map() };
    child.unref();
    child.on('message', ({ id, outcome }: FromLauncher) => started.waiting.get(id)?.resolve(outcome));
    const rejectAll = (cause?: Error) => {
      if (this.#process === started) this.#process = undefined;
      for (const { reject } of started.waiting.values()) reject(launcherEnded(cause));
    };
    child.once('error', rejectAll);
    child.once('exit', () => rejectAll());
    return started;
  }
}

/** The launcher of the whole server, in the namespaces of the server. */
export const sharedLauncher = new Launcher();

function launcherEnded(cause: Error | undefined): TorporError {
  return new TorporError('internal', 'The process that starts programs has ended.', { cause });
}
