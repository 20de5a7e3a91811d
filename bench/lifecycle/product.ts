/** Torpor's API, measured on a real server. */
import type { Torpor } from '@torpor/sdk';
import { row, time, timesOf } from '../measure.ts';
import { type Contender, type Line, rest } from './contender.ts';
import type { WholeFloor } from './floors.ts';
import { get, service } from './server.ts';

/**
 * Resumes and pauses a sandbox in each round, and wakes it once more by a request. It stays paused long enough for a
 * container to be created in advance.
 */
export async function cycles({ sandboxes }: Torpor, megabytes: number, how: string): Promise<Contender> {
  const { id } = await sandboxes.create({ services: [service(megabytes)], idleSeconds: 86_400 });
  await sandboxes.pause(id);
  const [pause, resume, firstByte, request]: [number[], number[], number[], number[]] = [[], [], [], []];
  return {
    async round() {
      await rest();
      const began = performance.now();
      const { sandbox } = await sandboxes.resume(id);
      resume.push(performance.now() - began);
      await get(sandbox);
      firstByte.push(performance.now() - began);
      await rest();
      pause.push((await time(1, () => sandboxes.pause(id))).p50);
      await rest();
      request.push((await time(1, () => get(sandbox))).p50);
      await sandboxes.pause(id);
    },
    lines: () => [
      { what: `pause, ${how}`, times: timesOf(pause) },
      { what: `resume, ${how}`, times: timesOf(resume) },
      { what: `resume to first HTTP byte, ${how}`, times: timesOf(firstByte) },
      { what: `request to a paused sandbox, to first HTTP byte, ${how}`, times: timesOf(request) },
    ],
    end: async () => void (await sandboxes.kill(id)),
  };
}

/** What is done with a running sandbox, and the cold start of the same server. */
export async function seals(
  { sandboxes }: Torpor,
  floor: WholeFloor,
  megabytes: number,
  rounds: number,
): Promise<Line[]> {
  const cold = await time(Math.min(rounds, 5), async () => {
    const { id } = await sandboxes.create({ services: [service(megabytes)] });
    await sandboxes.kill(id);
  });
  const { id } = await sandboxes.create({ services: [service(megabytes)], idleSeconds: 86_400 });
  const measured = async (work: () => Promise<unknown>) => {
    const times: number[] = [];
    for (let i = 0; i < Math.min(rounds, 7); i++) {
      await rest();
      times.push((await time(1, work)).p50);
    }
    return timesOf(times);
  };
  const snapshot = await measured(() => sandboxes.snapshot(id));
  const fork = async (count: number) => {
    await rest();
    const began = performance.now();
    const { items } = await sandboxes.fork(id, { count });
    const ms = performance.now() - began;
    for (const item of items) {
      if (!('sandbox' in item)) throw new Error(item.error.message);
      await sandboxes.kill(item.sandbox.id);
    }
    return ms;
  };
  const [one, raw, ten]: [number[], number[], number[]] = [[], [], []];
  for (let i = 0; i < Math.min(rounds, 7); i++) {
    one.push(await fork(1));
    if (megabytes > 0) continue;
    raw.push((await floor.crowd(10)).answeredMs);
    ten.push(await fork(10));
  }
  const intoTen = [
    { what: 'ten runsc restores at once, to the last first HTTP byte', times: timesOf(raw) },
    { what: 'fork into ten', times: timesOf(ten) },
  ];
  await sandboxes.kill(id);
  return [
    { what: 'create with a cold start of it', times: cold },
    { what: 'snapshot (the whole blink)', times: snapshot },
    { what: 'fork', times: timesOf(one) },
    ...(megabytes === 0 ? intoTen : []),
  ];
}

const AT_ONCE = 20;

export async function creates([usual, plain]: readonly [Torpor, Torpor], rounds: number): Promise<void> {
  console.log('\nan empty sandbox');
  console.log(row(['', 'p50 ms', 'p95 ms']));
  for (const [how, { sandboxes }] of [
    ['pre-created container', usual],
    ['no pre-created container', plain],
  ] as const) {
    const times: number[] = [];
    for (let i = 0; i < rounds; i++) {
      const began = performance.now();
      const { id } = await sandboxes.create();
      times.push(performance.now() - began);
      await sandboxes.kill(id);
      await rest();
    }
    const { p50, p95 } = timesOf(times);
    console.log(row([`create, ${how}`, p50, p95]));
    const together: number[] = [];
    for (let i = 0; i < 3; i++) {
      const began = performance.now();
      const made = await Promise.all(Array.from({ length: AT_ONCE }, () => sandboxes.create()));
      together.push(performance.now() - began);
      for (const { id } of made) await sandboxes.kill(id);
      await rest();
    }
    const all = timesOf(together);
    console.log(row([`create ${AT_ONCE} at once, ${how}`, all.p50, all.p95]));
  }
}

/** Compares pause and resume of a sandbox with 1 GiB in 10,000 files and of an empty one, in turns. */
export async function disk({ sandboxes }: Torpor, rounds: number): Promise<void> {
  const make = async () => ({
    id: (await sandboxes.create({ idleSeconds: 86_400 })).id,
    pause: [] as number[],
    resume: [] as number[],
  });
  const [empty, full] = [await make(), await make()];
  await sandboxes.exec(full.id, {
    command:
      'mkdir data; cd data; for d in $(seq 100); do mkdir $d; head -c 10737418 /dev/urandom | split -b 107374 - $d/f; done; sync',
    timeoutSeconds: 600,
  });
  for (let i = -1; i < Math.min(rounds, 7); i++) {
    for (const { id, pause, resume } of [empty, full]) {
      await sandboxes.exec(id, `echo ${i} > changed`);
      const [down, up] = [
        await time(1, () => sandboxes.pause(id)),
        await time(1, () => sandboxes.resume(id)),
      ];
      // The first round syncs all files and is not counted.
      if (i < 0) continue;
      pause.push(down.p50);
      resume.push(up.p50);
    }
  }
  console.log('\n1 GiB in 10,000 files against nothing');
  console.log(row(['', 'empty p50', 'full p50', 'ratio']));
  for (const what of ['pause', 'resume'] as const) {
    const [small, large] = [timesOf(empty[what]).p50, timesOf(full[what]).p50];
    console.log(row([what, small, large, large / small]));
  }
  for (const { id } of [empty, full]) await sandboxes.kill(id);
}
