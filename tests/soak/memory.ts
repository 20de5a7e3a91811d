/**
 * Creates and kills sandboxes in rounds on a real server, and reads the server's memory after each round, when all
 * sandboxes are gone. Memory that a sandbox leaks shows as growth from the first round to the last.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { ask } from '@torpor/gateway/testing';
import { bareSandboxId, type SandboxId } from '@torpor/protocol';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { mapBounded } from '../load/load.ts';
import { guestService } from '../wake/guest-app.ts';
import type { MemoryReading } from './memory-probe.ts';

export interface MemorySoak {
  readonly runtime: 'process' | 'gvisor';
  readonly rounds: number;
  readonly sandboxesPerRound: number;
  /** How many sandboxes live at the same time. */ readonly concurrency: number;
  /** With forks, preview requests and event streams; otherwise only commands and one pause. */
  readonly isWhole: boolean;
}

export interface MemoryReport {
  /** One reading after the start, and one after each round. */
  readonly readings: readonly MemoryReading[];
  /** Growth from the end of the first round to the end of the last, per sandbox. */
  readonly heapBytesPerSandbox: number;
  readonly bufferBytesPerSandbox: number;
  readonly timersPerSandbox: number;
}

const PROBE = join(import.meta.dirname, 'memory-probe.ts');
const PORT = 3000;

/** A server whose memory can be read. */
export interface ProbedServer {
  readonly server: TorporProcess;
  /** What is in use when all garbage is collected. */
  readMemory(): Promise<MemoryReading>;
  /** Kills all sandboxes and stops the server. */
  end(): Promise<void>;
}

export async function startProbed(
  dataDir: string,
  runtime: MemorySoak['runtime'],
  env: Record<string, string> = {},
): Promise<ProbedServer> {
  const directory = await mkdtemp(join(tmpdir(), 'torpor-probe-'));
  const probe = join(directory, 'probe.sock');
  const node = [process.execPath, '--expose-gc', '--import', PROBE] as const;
  const quiet = { TORPOR_LOG_LEVEL: 'error', MEMORY_PROBE: probe };
  const server = await startTorpor(dataDir, { ...quiet, ...env }, runtime, [], node);
  return {
    server,
    readMemory: async () => (await json(connect(probe))) as MemoryReading,
    end: async () => {
      await server.end();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

export async function runMemorySoak(dataDir: string, soak: MemorySoak): Promise<MemoryReport> {
  const { server, readMemory, end } = await startProbed(dataDir, soak.runtime);
  try {
    const readings = [await readMemory()];
    for (let round = 0; round < soak.rounds; round++) {
      await mapBounded(soak.concurrency, soak.sandboxesPerRound, () => runSandbox(server, soak));
      // Waits for removals that happen after the answers.
      await server.torpor.fsck();
      readings.push(await readMemory());
    }
    return { readings, ...growthOf(readings.slice(1), soak.sandboxesPerRound) };
  } finally {
    await end();
  }
}

async function runSandbox(server: TorporProcess, { isWhole }: MemorySoak): Promise<void> {
  const { sandboxes } = server.torpor;
  const services = isWhole ? [guestService()] : [];
  const { id } = await sandboxes.create({ idleSeconds: 86_400, services });
  const leaving = new AbortController();
  const reading = isWhole ? readEvents(server, id, leaving.signal) : undefined;
  const children: SandboxId[] = [];
  try {
    await sandboxes.exec(id, 'head -c 100000 /dev/zero | tr "\\0" x');
    if (isWhole) await requestPreview(server, id);
    await sandboxes.pause(id);
    // Wakes the sandbox.
    if (isWhole) await requestPreview(server, id);
    await sandboxes.exec(id, 'echo awake');
    if (isWhole) {
      const { items } = await sandboxes.fork(id);
      for (const item of items) if ('sandbox' in item) children.push(item.sandbox.id);
    }
  } finally {
    leaving.abort();
    await reading;
    for (const sandbox of [id, ...children]) await sandboxes.kill(sandbox);
  }
}

async function readEvents({ torpor }: TorporProcess, id: SandboxId, signal: AbortSignal): Promise<void> {
  try {
    for await (const _ of torpor.sandboxes.events(id, { signal }));
  } catch (thrown) {
    if (!signal.aborted) throw thrown;
  }
}

async function requestPreview({ url }: TorporProcess, id: SandboxId): Promise<void> {
  const { port } = new URL(url);
  const { status } = await ask(Number(port), `${PORT}-${bareSandboxId(id)}.sbx.localhost:${port}`);
  if (status !== 200) throw new Error(`A preview request to ${id} got ${status}.`);
}

function growthOf(readings: readonly MemoryReading[], perRound: number): Omit<MemoryReport, 'readings'> {
  const [first, last] = [readings[0], readings.at(-1)];
  if (first === undefined || last === undefined || readings.length < 2)
    throw new Error('Growth needs at least two rounds.');
  const sandboxes = (readings.length - 1) * perRound;
  return {
    heapBytesPerSandbox: (last.heapBytes - first.heapBytes) / sandboxes,
    bufferBytesPerSandbox: (last.bufferBytes - first.bufferBytes) / sandboxes,
    timersPerSandbox: (last.timers - first.timers) / sandboxes,
  };
}
