/**
 * Starts programs of the system from a small process of its own. A server that starts them itself stands still for
 * each until the new program has begun, and every visitor of every sandbox with it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { TorporError } from '@torpor/protocol';
import { plainEnvironment } from './plain-environment.ts';

export interface LaunchOrder {
  readonly program: string;
  /** Each as it is; a shell never sees one. */
  readonly args: readonly string[];
  /** All that it knows of. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly input?: string;
  /** It waits for a line, and gets it by `tell`. */
  readonly waits?: boolean;
  /**
   * A file that takes what it prints. Needed by programs that leave something running: that keeps the output it
   * was given, and the end of a pipe would not be the end of the program.
   */
  readonly output?: string;
}

export interface ProgramEnd {
  /** Null when a signal ended it. */
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** `failed` is the errno of one that could not be started. */
export type Launched = ProgramEnd | { readonly failed: string };

export type ToLauncher =
  | { readonly id: number; readonly order: LaunchOrder }
  /** By its id. */
  | { readonly kill: number }
  | { readonly tell: number };

/** A program that was started. */
export interface Running {
  /** Resolves however it ended, rejects when it could not be started. */
  readonly ended: Promise<ProgramEnd>;
  tell(): void;
  kill(): void;
}

interface FromLauncher {
  readonly id: number;
  readonly launched: Launched;
}

const LAUNCHER = fileURLToPath(new URL('./launcher.mjs', import.meta.url));
/** It holds next to nothing. */
const NODE_FLAGS = ['--single-threaded', '--max-semi-space-size=1'];

interface Helper {
  readonly child: ChildProcess;
  readonly waiting: Map<number, PromiseWithResolvers<Launched>>;
}

export class Launcher {
  readonly #entry: readonly string[];
  #helper: Helper | undefined;
  #lastId = 0;

  /** `entry` is what the process is started through, to be somewhere else on this machine. */
  constructor(entry: readonly string[] = []) {
    this.#entry = entry;
  }

  /**
   * Resolves however it ended. Rejects when it could not be started. An abort kills it, and is heard of by its end,
   * so that nobody need reckon with it any more. Should the small process itself be killed, that is an internal
   * error, and the program goes on as it would after a crash of the server.
   */
  async launch(order: LaunchOrder, signal?: AbortSignal): Promise<ProgramEnd> {
    const running = this.start(order);
    const kill = () => running.kill();
    signal?.addEventListener('abort', kill);
    if (signal?.aborted === true) kill();
    try {
      return await running.ended;
    } finally {
      signal?.removeEventListener('abort', kill);
    }
  }

  start(order: LaunchOrder): Running {
    const id = ++this.#lastId;
    this.#helper ??= this.#start();
    const { child, waiting } = this.#helper;
    const ended = Promise.withResolvers<Launched>();
    const tell = (message: ToLauncher) =>
      child.send(message, (error) => error && ended.reject(broken(error)));
    waiting.set(id, ended);
    // Nobody waits for one that has nothing to do.
    child.channel?.ref();
    tell({ id, order });
    const end = async () => {
      try {
        const launched = await ended.promise;
        if (!('failed' in launched)) return launched;
        throw Object.assign(new Error(`${order.program}: ${launched.failed}`), { code: launched.failed });
      } finally {
        waiting.delete(id);
        if (waiting.size === 0) child.channel?.unref();
      }
    };
    return { ended: end(), tell: () => tell({ tell: id }), kill: () => tell({ kill: id }) };
  }

  /** The next order starts another. */
  close(): void {
    if (this.#helper?.child.connected === true) this.#helper.child.disconnect();
    this.#helper = undefined;
  }

  #start(): Helper {
    const [program, ...args] = [...this.#entry, process.execPath, ...NODE_FLAGS, LAUNCHER];
    const child = spawn(program as string, args, {
      env: plainEnvironment(),
      cwd: '/',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      // Out of reach of what the terminal says to the server, which has to end things in order.
      detached: true,
    });
    const helper: Helper = { child, waiting: new Map() };
    child.unref();
    child.on('message', ({ id, launched }: FromLauncher) => helper.waiting.get(id)?.resolve(launched));
    const giveUp = (cause?: Error) => {
      if (this.#helper === helper) this.#helper = undefined;
      for (const { reject } of helper.waiting.values()) reject(broken(cause));
    };
    child.once('error', giveUp);
    child.once('exit', () => giveUp());
    return helper;
  }
}

/** One for the whole server, as there is one server to be spared. */
export const usualLauncher = new Launcher();

export function launch(order: LaunchOrder, signal?: AbortSignal): Promise<ProgramEnd> {
  return usualLauncher.launch(order, signal);
}

function broken(cause: Error | undefined): TorporError {
  return new TorporError('internal', 'The process that starts programs has ended.', { cause });
}
