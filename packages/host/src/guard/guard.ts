/**
 * A process outside the server that ends the server and all its sandboxes when a deadline passes. The server moves the deadline
 * as long as it may run sandboxes. See `guard-process.mjs` for what happens when it does not.
 *
 * When the guard itself ends or hangs, nothing would end the sandboxes of a server that is killed a moment later. So the server
 * starts another guard whose deadline has passed already: it ends everything at once, the server included.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { TorporError } from '@torpor/protocol';
import { writeFileDurably } from '../durable-write.ts';
import { linuxProcesses } from '../processes/linux-processes.ts';
import { minimalEnvironment } from '../programs/environment.ts';
import { bootTime } from './boot-time.ts';
import type { GuardTargets } from './guard-targets.ts';

export interface GuardOptions {
  /** Has a file that names the guard, so that the next server finds it. */
  readonly directory: string;
  readonly targets: GuardTargets;
  readonly report: (what: string, facts: Readonly<Record<string, unknown>>) => void;
  /** Ends this process at once, when no other guard can be started that would. */
  readonly endServer: () => void;
}

const PROGRAM = fileURLToPath(new URL('./guard-process.mjs', import.meta.url));
const FILE = 'guard.json';
/** Keep the guard small. */
const NODE_FLAGS = ['--single-threaded', '--max-semi-space-size=1', '--max-old-space-size=32'];
/** A guard that does not answer within this time hangs, or is stopped. */
const ANSWER_MS = 10_000;

interface GuardIdentity {
  readonly pid: number;
  readonly startedAt: string;
  readonly bootId: string;
}

export class Guard {
  readonly #options: GuardOptions;
  readonly #child: ChildProcess;
  readonly #waiting: PromiseWithResolvers<void>[] = [];
  readonly #previous: GuardIdentity | undefined;
  #mode: 'guarding' | 'released' | 'ending' = 'guarding';
  #hasDeadline = false;

  private constructor(options: GuardOptions, child: ChildProcess, previous: GuardIdentity | undefined) {
    this.#options = options;
    this.#child = child;
    this.#previous = previous;
    let rest = '';
    child.stdout?.setEncoding('latin1').on('data', (text: string) => {
      const lines = `${rest}${text}`.split('\n');
      rest = lines.pop() ?? '';
      for (const _ of lines) this.#waiting.shift()?.resolve();
    });
    for (const stream of [child.stdin, child.stdout]) stream?.on('error', () => {});
    child.once('exit', () => this.#onLost('the guard of this node has ended'));
    // The server may end before its guard does.
    child.unref();
    for (const stream of [child.stdin, child.stdout]) (stream as { unref?(): void } | null)?.unref?.();
  }

  /** The guard has no deadline until the first `extend`. */
  static async start(options: GuardOptions): Promise<Guard> {
    const previous = await readIdentity(join(options.directory, FILE));
    const child = await spawnGuard(options.targets);
    const guard = new Guard(options, child, previous);
    const ready = guard.#answer();
    await ready;
    const identity = await identityOf(child.pid as number);
    await writeFileDurably(join(options.directory, FILE), `${JSON.stringify(identity)}\n`);
    return guard;
  }

  /** Milliseconds of CLOCK_BOOTTIME. */
  now(): number {
    return bootTime();
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Moves the deadline. Resolves when the guard knows it. */
  async extend(deadline: number): Promise<void> {
    if (this.#mode !== 'guarding') return;
    const answered = this.#answer();
    this.#child.stdin?.write(`${deadline}\n`);
    try {
      await answered;
    } catch (thrown) {
      this.#onLost('the guard of this node does not answer');
      throw thrown;
    }
    // The guard of the server before this one would end everything at its own, earlier deadline.
    if (!this.#hasDeadline && this.#previous !== undefined) await endProcess(this.#previous);
    this.#hasDeadline = true;
  }

  /** Ends all sandboxes and this process, now. */
  endEverything(why: string): void {
    if (this.#mode === 'ending') return;
    this.#mode = 'ending';
    const { report, targets, endServer } = this.#options;
    report(why, { guard: this.#child.pid });
    // A guard of its own, because the other one may hang.
    spawnGuard(targets).then(
      (child) => child.stdin?.write('0\n'),
      (error: unknown) => {
        report('no guard could be started', { error });
        endServer();
      },
    );
  }

  /** The server stops in order: the guard stays for the sandboxes that run on, until its deadline. */
  release(): void {
    if (this.#mode === 'guarding') this.#mode = 'released';
    this.#child.stdin?.end();
  }

  #onLost(why: string): void {
    for (const { reject } of this.#waiting.splice(0)) reject(new TorporError('unreachable', why));
    if (this.#mode === 'guarding') this.endEverything(why);
  }

  #answer(): Promise<void> {
    const answer = Promise.withResolvers<void>();
    this.#waiting.push(answer);
    const timer = setTimeout(
      () => answer.reject(new TorporError('timeout', 'The guard does not answer.')),
      ANSWER_MS,
    );
    return answer.promise.finally(() => clearTimeout(timer));
  }
}

async function spawnGuard(targets: GuardTargets): Promise<ChildProcess> {
  const server = await linuxProcesses.read(process.pid);
  if (server === undefined)
    throw new TorporError('capability_unsupported', 'The processes of this machine cannot be read.');
  const { pid, startedAt } = server;
  const child = spawn(
    process.execPath,
    [...NODE_FLAGS, PROGRAM, JSON.stringify({ server: { pid, startedAt }, targets })],
    // A session of its own: what ends the server's terminal or process group must not end the guard.
    { detached: true, stdio: ['pipe', 'pipe', 'inherit'], env: minimalEnvironment(), cwd: '/' },
  );
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', reject);
  });
  return child;
}

async function identityOf(pid: number): Promise<GuardIdentity> {
  const facts = await linuxProcesses.read(pid);
  return { pid, startedAt: facts?.startedAt ?? '', bootId: await linuxProcesses.bootId() };
}

async function readIdentity(file: string): Promise<GuardIdentity | undefined> {
  try {
    const { pid, startedAt, bootId } = JSON.parse(await readFile(file, 'utf8'));
    return Number.isInteger(pid) && pid > 1 ? { pid, startedAt, bootId } : undefined;
  } catch {
    return undefined;
  }
}

async function endProcess({ pid, startedAt, bootId }: GuardIdentity): Promise<void> {
  if (bootId !== (await linuxProcesses.bootId())) return;
  if ((await linuxProcesses.read(pid))?.startedAt !== startedAt) return;
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has just ended.
  }
}
