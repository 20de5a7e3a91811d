/**
 * Many sandboxes and many concurrent workers on a real server: no state gets stuck, no file is lost, the server's
 * memory does not grow, and nothing is left afterwards.
 */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { forEachBounded } from '@torpor/host';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { Torpor } from '@torpor/sdk';
import { startTorpor } from '../crash/torpor-process.ts';

const run = promisify(execFile);

export interface Load {
  readonly sandboxes: number;
  readonly workers: number;
  readonly ms: number;
}

export interface LoadReport {
  readonly done: Readonly<Record<string, number>>;
  readonly refused: Readonly<Record<string, number>>;
  readonly memoryMb: readonly number[];
}

/** Errors that concurrent callers must expect. Any other error fails the test. */
const EXPECTED = new Set(['transitioning', 'conflict', 'capacity']);

export async function runLoad(dataDir: string, load: Load): Promise<LoadReport> {
  const server = await startTorpor(dataDir, { TORPOR_LOG_LEVEL: 'error' });
  const { torpor } = server;
  const done: Record<string, number> = {};
  const refused: Record<string, number> = {};
  const written = new Map<SandboxId, string[]>();
  try {
    const ids = await mapBounded(load.workers, load.sandboxes, async () => {
      const { id } = await torpor.sandboxes.create({ idleSeconds: 86_400 });
      written.set(id, []);
      return id;
    });
    const memoryMb = [await residentMb(server.pid)];
    const until = Date.now() + load.ms;
    await mapBounded(load.workers, load.workers, async (worker) => {
      for (let n = 0; Date.now() < until; n++) {
        const id = pick(ids);
        const [what, act] = pick(actionsOn(torpor, id, `${worker}-${n}`, written));
        await act().then(
          () => count(done, what),
          (thrown: unknown) => {
            if (!(thrown instanceof TorporError) || !EXPECTED.has(thrown.code)) throw thrown;
            count(refused, thrown.code);
          },
        );
        if (worker === 0 && n % 10 === 9) memoryMb.push(await residentMb(server.pid));
      }
    });
    await checkAll(torpor, load, written);
    await mapBounded(load.workers, ids.length, (i) => torpor.sandboxes.kill(ids[i] ?? 'sbx_'));
    await torpor.fsck();
    memoryMb.push(await residentMb(server.pid));
    const { stdout } = await run('ps', ['-eo', 'pid,args']);
    const left = stdout.split('\n').filter((line) => line.includes(`${dataDir}/process`));
    if (left.length > 0) throw new Error(`Processes are left:\n${left.join('\n')}`);
    return { done, refused, memoryMb };
  } finally {
    await server.kill('SIGTERM');
  }
}

type Action = readonly [what: string, act: () => Promise<unknown>];

function actionsOn(torpor: Torpor, id: SandboxId, name: string, written: Map<SandboxId, string[]>): Action[] {
  const { sandboxes } = torpor;
  const write: Action = [
    'write',
    async () => {
      const { exitCode } = await sandboxes.exec(id, `echo ${name} > ${name} && sync ${name}`);
      // Only acknowledged writes must survive.
      if (exitCode === 0) written.get(id)?.push(name);
    },
  ];
  return [
    write,
    write,
    ['pause', () => sandboxes.pause(id)],
    ['resume', () => sandboxes.resume(id)],
    ['snapshot', () => sandboxes.snapshot(id)],
    ['get', () => sandboxes.get(id)],
    [
      'fork',
      async () => {
        const { items } = await sandboxes.fork(id);
        for (const item of items) if ('sandbox' in item) await sandboxes.kill(item.sandbox.id);
      },
    ],
  ];
}

/** Every sandbox is running or paused, and has every acknowledged file. */
async function checkAll(torpor: Torpor, { workers }: Load, written: Map<SandboxId, string[]>): Promise<void> {
  const all = [...written];
  await mapBounded(workers, all.length, async (i) => {
    const [id, names] = all[i] ?? ['sbx_', []];
    const { state } = await torpor.sandboxes.get(id as SandboxId);
    if (state !== 'running' && state !== 'paused') throw new Error(`${id} is ${state}.`);
    const { stdout } = await torpor.sandboxes.exec(id as SandboxId, 'ls');
    const there = new Set(stdout.split('\n'));
    const lost = names.filter((name) => !there.has(name));
    if (lost.length > 0) throw new Error(`${id} lost ${lost.join(', ')}.`);
  });
}

/** Runs `work` for 0 to count - 1, at most `workers` at a time, and returns the results in order. */
export async function mapBounded<T>(
  workers: number,
  count: number,
  work: (i: number) => Promise<T>,
): Promise<T[]> {
  const results: T[] = [];
  await forEachBounded(Array(count).keys(), workers, async (i) => {
    results[i] = await work(i);
  });
  return results;
}

async function residentMb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024);
}

function pick<T>(items: readonly T[]): T {
  const item = items[Math.floor(Math.random() * items.length)];
  if (item === undefined) throw new Error('There is nothing to pick from.');
  return item;
}

function count(counts: Record<string, number>, what: string): void {
  counts[what] = (counts[what] ?? 0) + 1;
}
