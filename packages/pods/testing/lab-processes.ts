/** The processes of a lab cluster: started with a log each, ended in the opposite order. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export class LabProcesses {
  readonly #directory: string;
  readonly #running = new Map<string, ChildProcess>();

  constructor(directory: string) {
    this.#directory = join(directory, 'log');
    mkdirSync(this.#directory, { recursive: true });
  }

  start(name: string, command: readonly string[], env: NodeJS.ProcessEnv = process.env): ChildProcess {
    const log = openSync(join(this.#directory, `${name}.log`), 'a');
    const [program = '', ...args] = command;
    const child = spawn(program, args, { env, stdio: ['ignore', log, log], detached: true });
    child.unref();
    this.#running.set(name, child);
    return child;
  }

  has(name: string): boolean {
    return this.#running.get(name)?.exitCode === null;
  }

  pid(name: string): number {
    const pid = this.#running.get(name)?.pid;
    if (pid === undefined) throw new Error(`${name} does not run.`);
    return pid;
  }

  signal(name: string, signal: NodeJS.Signals): void {
    process.kill(this.pid(name), signal);
  }

  /** Throws with the end of the log when the process has ended. */
  requireRunning(name: string): void {
    if (this.has(name)) return;
    const log = readFileSync(join(this.#directory, `${name}.log`), 'utf8');
    throw new Error(`${name} of the lab has ended:\n${log.slice(-3_000)}`);
  }

  async stop(name: string, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#running.get(name);
    this.#running.delete(name);
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    const timer = setTimeout(() => child.kill('SIGKILL'), 5_000);
    await ended;
    clearTimeout(timer);
  }
}

/** Tries until it does not throw. */
export async function eventually<T>(
  what: string,
  attempt: () => Promise<T> | T,
  withinMs = 120_000,
): Promise<T> {
  const until = Date.now() + withinMs;
  for (;;) {
    try {
      return await attempt();
    } catch (cause) {
      if (Date.now() > until) throw new Error(`${what} did not happen within ${withinMs} ms`, { cause });
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
