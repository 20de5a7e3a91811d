/** The lower bounds: `runsc` by hand, without Torpor. */
import { mkdir, open, readdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Image, makeGuestWorld } from '../../packages/runtime-gvisor/src/guest/testing/guest-world.ts';
import { writeTinyBundle } from '../../packages/runtime-gvisor/src/host-checks/tiny-bundle.ts';
import { findRunsc } from '../../packages/runtime-gvisor/src/runsc/find-runsc.ts';
import { Runsc } from '../../packages/runtime-gvisor/src/runsc/runsc.ts';
import type { Container } from '../../packages/runtime-gvisor/src/runsc/runsc-container.ts';
import { time, timesOf } from '../measure.ts';
import { barrier, type Contender, rest } from './contender.ts';
import { answer, serverCode, service } from './server.ts';

const unhurried = new AbortController().signal;

/** runsc alone, with the same server and nothing else: no agent, no network, no layers. */
export async function bareFloor(dir: string, megabytes: number, rounds: number): Promise<Contender> {
  const configured = process.env['TORPOR_RUNSC'] || undefined;
  const { found } = await findRunsc({ dataDir: dir, runsc: configured }, unhurried);
  if (found === null) throw new Error('There is no usable runsc.');
  const runsc = new Runsc({
    program: found.program,
    root: join(dir, 'root'),
    network: 'none',
    ignoreCgroups: true,
  });
  let n = 0;
  const container = async () => {
    // Fixed width, because runsc accepts a prefix for a name.
    const id = `floor-${megabytes}-${String(n++).padStart(3, '0')}`;
    const bundle = join(dir, id);
    await mkdir(bundle);
    const node = dirname(process.execPath);
    await writeTinyBundle(bundle, {
      args: [process.execPath, '-e', serverCode(megabytes)],
      binds: { [node]: { source: node, writable: false } },
    });
    return { id, bundle, logs: join(bundle, 'logs'), netns: null };
  };
  const first = await container();
  await runsc.run(first, unhurried);
  await new Promise((resolve) => setTimeout(resolve, 2_000 + megabytes * 10));
  const images: string[] = [];
  const checkpoint = await time(rounds, async (i) => {
    const image = join(dir, `image-${megabytes}-${i}`);
    images.push(image);
    await runsc.freeze(first, unhurried);
    await runsc.writeImage(first, image, unhurried);
    await runsc.thaw(first, unhurried);
  });
  await runsc.killProcesses(first, unhurried);
  const restored: Container[] = [];
  const restore: number[] = [];
  return {
    async round() {
      const one = await container();
      restored.push(one);
      await rest();
      const began = performance.now();
      await runsc.restore(one, images[0] ?? '', unhurried);
      restore.push(performance.now() - began);
      await runsc.killProcesses(one, unhurried);
    },
    lines: () => [
      { what: 'runsc pause, checkpoint, resume: the server alone, not durable', times: checkpoint },
      { what: 'runsc restore: the server alone', times: timesOf(restore) },
    ],
    end: async () => {
      for (const one of [first, ...restored]) await runsc.delete(one, unhurried);
    },
  };
}

export interface CrowdTimes {
  /** Until the last one was restored. */
  readonly restoredMs: number;
  /** Until the last one has answered a request. */
  readonly answeredMs: number;
}

export interface WholeFloor extends Contender {
  /** Restores many at once from one image, all prepared before. */
  crowd(count: number): Promise<CrowdTimes>;
  readonly checkpointMs: () => number;
  readonly restoreMs: () => number;
}

/** runsc alone, with everything that a sandbox consists of: agent, server, system directories, layers, a network. */
export async function wholeFloor(megabytes: number): Promise<WholeFloor> {
  const world = await makeGuestWorld();
  const boot = async () => {
    const guest = await world.boot();
    await guest.sh(`${service(megabytes).command} > /dev/null 2>&1 & sleep ${2 + megabytes / 100}`);
    return guest;
  };
  const image: Image = await (await boot()).sleep();
  // A second one, which is checkpointed again and again and goes on.
  const running = await boot();
  const until = (host: string) => answer({ host, port: 8080, agent: false });
  const [checkpoint, blink, restore, firstByte]: [number[], number[], number[], number[]] = [[], [], [], []];
  return {
    async round() {
      await rest();
      const written = join(world.directory, `checkpoint-${checkpoint.length}`);
      const { syncedMs, blinkMs } = await running.checkpoint(written, () => syncFiles(written));
      checkpoint.push(syncedMs);
      blink.push(blinkMs);
      await rm(written, { recursive: true });
      const woken = await world.wake(image, { rest, until });
      restore.push(woken.startMs);
      firstByte.push(woken.readyMs);
      await woken.stop();
    },
    async crowd(count) {
      const prepared = barrier(count);
      const restOnce = async () => {
        await prepared();
        await rest();
      };
      const woken = await Promise.all(
        Array.from({ length: count }, () => world.wake(image, { rest: restOnce, until })),
      );
      for (const guest of woken) await guest.stop();
      return {
        restoredMs: Math.max(...woken.map(({ startMs }) => startMs)),
        answeredMs: Math.max(...woken.map(({ readyMs }) => readyMs)),
      };
    },
    checkpointMs: () => timesOf(checkpoint).p50,
    restoreMs: () => timesOf(restore).p50,
    lines: () => [
      { what: 'runsc pause, checkpoint, fsync: the whole sandbox', times: timesOf(checkpoint) },
      { what: 'the same and resume', times: timesOf(blink) },
      { what: 'runsc restore to first HTTP byte: the whole sandbox', times: timesOf(firstByte) },
      { what: 'runsc restore: the whole sandbox', times: timesOf(restore) },
    ],
    end: () => world.dispose(),
  };
}

/** What "durable" costs at the least: the files and their directory are on the disk. */
async function syncFiles(directory: string): Promise<void> {
  const paths = [...(await readdir(directory)).map((name) => join(directory, name)), directory];
  for (const path of paths) {
    const file = await open(path, 'r');
    try {
      await file.sync();
    } finally {
      await file.close();
    }
  }
}
