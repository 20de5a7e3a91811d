/** Many sandboxes: what they cost while they sleep, and how long it takes to wake some of them at once. */
import { readFileSync } from 'node:fs';
import type { SandboxId } from '@torpor/protocol';
import type { TorporProcess } from '../../tests/crash/torpor-process.ts';
import { row, time, timesOf } from '../measure.ts';
import { rest } from './contender.ts';
import type { CrowdTimes, WholeFloor } from './floors.ts';
import { get, service } from './server.ts';

/** A server, and how its sandboxes wake. */
export interface CrowdServer {
  readonly how: string;
  readonly server: TorporProcess;
}

/** Wakes many paused sandboxes at once, on each server in turn, beside as many raw restores: none may fail. */
export async function crowd(
  servers: readonly CrowdServer[],
  floor: WholeFloor,
  atOnce: number,
  rounds: number,
): Promise<void> {
  const contenders = await Promise.all(servers.map((server) => makeCrowd(server, atOnce)));
  const raw: CrowdTimes[] = [];
  for (let i = 0; i < rounds; i++) {
    await rest();
    raw.push(await floor.crowd(atOnce));
    for (const contender of contenders) await contender.round();
  }
  console.log(`\n${atOnce} at once, until the last one; medians of ${rounds}`);
  console.log(row(['', 'restored ms', 'answers ms', '× raw']));
  const show = (what: string, times: readonly CrowdTimes[]) => {
    const [restored, answered, floorMs] = [
      timesOf(times.map(({ restoredMs }) => restoredMs)).p50,
      timesOf(times.map(({ answeredMs }) => answeredMs)).p50,
      timesOf(raw.map(({ answeredMs }) => answeredMs)).p50,
    ];
    console.log(row([what, restored, answered, answered / floorMs]));
  };
  show('runsc restore', raw);
  for (const { how, times, bytesEach } of contenders) {
    show(`resume, ${how}`, times);
    console.log(`  ${(bytesEach / 1e6).toFixed(1)} MB each on the disk while they sleep`);
  }
  for (const contender of contenders) await contender.end();
}

async function makeCrowd({ how, server: { torpor } }: CrowdServer, atOnce: number) {
  const { sandboxes, checkpoints } = torpor;
  const ids: SandboxId[] = [];
  for (let i = 0; i < atOnce; i++)
    ids.push((await sandboxes.create({ services: [service(0)], idleSeconds: 86_400 })).id);
  let bytes = 0;
  for (const id of ids) {
    const { checkpoint } = await sandboxes.pause(id);
    bytes += (await checkpoints.get(checkpoint.id)).bytes ?? 0;
  }
  const times: CrowdTimes[] = [];
  return {
    how,
    times,
    bytesEach: bytes / atOnce,
    async round() {
      await rest();
      const began = performance.now();
      let restoredMs = 0;
      await Promise.all(
        ids.map(async (id) => {
          const { sandbox } = await sandboxes.resume(id);
          restoredMs = performance.now() - began;
          await get(sandbox);
        }),
      );
      times.push({ restoredMs, answeredMs: performance.now() - began });
      for (const id of ids) await sandboxes.pause(id);
    },
    async end() {
      for (const id of ids) await sandboxes.kill(id);
    },
  };
}

/** As many sleepers as one machine should hold: the list, the idle server, and its memory. */
export async function thousand({ torpor, pid }: TorporProcess, asleep: number): Promise<void> {
  const { sandboxes } = torpor;
  const first = await sandboxes.create({ services: [service(0)] });
  const ids: SandboxId[] = [first.id];
  await sandboxes.pause(first.id);
  while (ids.length < asleep) {
    const count = Math.min(10, asleep - ids.length);
    const { items } = await sandboxes.fork(first.id, { count });
    for (const item of items) {
      if (!('sandbox' in item)) throw new Error(item.error.message);
      ids.push(item.sandbox.id);
      await sandboxes.pause(item.sandbox.id);
    }
  }
  const list = await time(20, () => sandboxes.page({ limit: 100 }));
  const whole = await time(5, async () => {
    let seen = 0;
    for await (const _ of sandboxes.list({ limit: 1_000 })) seen += 1;
    if (seen < asleep) throw new Error(`${seen} of ${asleep} are listed.`);
  });
  await new Promise((resolve) => setTimeout(resolve, 10_000));
  const before = processorMs(pid);
  await new Promise((resolve) => setTimeout(resolve, 60_000));
  const busy = (processorMs(pid) - before) / 60_000;
  console.log(
    `\n${asleep} asleep: a page of 100 ${list.p50.toFixed(0)} ms, all of them ${whole.p50.toFixed(0)} ms; idle server ` +
      `${(busy * 100).toFixed(1)} % of a core, ${residentMb(pid)} MB resident`,
  );
  for (const id of ids) await sandboxes.kill(id);
}

/** What running sandboxes cost that do nothing: processor time and memory of the whole machine, per sandbox. */
export async function idle({ torpor: { sandboxes } }: TorporProcess, running: number): Promise<void> {
  const ids: SandboxId[] = [];
  const memory = availableMb();
  for (let i = 0; i < running; i++)
    ids.push((await sandboxes.create({ services: [service(0)], onIdle: 'keep' })).id);
  await new Promise((resolve) => setTimeout(resolve, 10_000));
  const before = machineMs();
  await new Promise((resolve) => setTimeout(resolve, 20_000));
  const share = (machineMs() - before) / 20_000 / running;
  const mb = (memory - availableMb()) / running;
  console.log(
    `\n${running} running and idle: ${(share * 100).toFixed(2)} % of a core and ${mb.toFixed(0)} MB each`,
  );
  for (const id of ids) await sandboxes.pause(id);
  await new Promise((resolve) => setTimeout(resolve, 10_000));
  const asleep = machineMs();
  await new Promise((resolve) => setTimeout(resolve, 20_000));
  const left = (machineMs() - asleep) / 20_000 / running;
  const kept = (memory - availableMb()) / running;
  console.log(`the same, paused: ${(left * 100).toFixed(2)} % of a core and ${kept.toFixed(0)} MB each`);
  for (const id of ids) await sandboxes.kill(id);
}

const TICKS_PER_SECOND = 100;

function processorMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return ((Number(fields[11]) + Number(fields[12])) * 1_000) / TICKS_PER_SECOND;
}

/** Everything but idle and waiting for the disk. */
function machineMs(): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = (
    readFileSync('/proc/stat', 'utf8').split('\n')[0] ?? ''
  )
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return ((user + nice + system + irq + softirq) * 1_000) / TICKS_PER_SECOND;
}

function residentMb(pid: number): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/^VmRSS:\s+(\d+)/m.exec(text)?.[1]) / 1024);
}

function availableMb(): number {
  return Number(/^MemAvailable:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]) / 1024;
}
