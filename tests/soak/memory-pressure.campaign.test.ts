/**
 * Memory runs out in a container with a server and its sandboxes: a control group with a limit is the outermost one that the
 * server sees. `TORPOR_PRESSURE_ROUNDS` sets how often.
 */
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findCgroups } from '../../packages/runtime-gvisor/src/container/cgroups.ts';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const ROUNDS = Number(process.env['TORPOR_PRESSURE_ROUNDS'] ?? 3);
const SLEEPERS = 6;
const MIB = 1024 * 1024;
/** How much the container has beyond what it uses when all sandboxes are asleep in memory. */
const SPARE_MB = 250;
/** What the large sandbox takes, step by step: more than is spare, less than that and the memory of the sleepers. */
const TAKEN_MB = 480;
const STEP_MB = 20;
const STEP_EVERY_MS = 100;

const CGROUPS = '/sys/fs/cgroup';
const host = (await whyNoGvisor()) === null ? await findCgroups() : null;
const seen = host?.version === 'v1' ? join(CGROUPS, 'memory') : CGROUPS;
const container = join(seen, `torpor-container-${process.pid}`);
const files =
  host?.version === 'v1'
    ? {
        limit: 'memory.limit_in_bytes',
        usage: 'memory.usage_in_bytes',
        cached: 'total_inactive_file',
        oom: 'memory.oom_control',
      }
    : { limit: 'memory.max', usage: 'memory.current', cached: 'inactive_file', oom: 'memory.events' };

/** Each request counts, and takes the given number of megabytes. */
const server = (port: number, megabytes: number) =>
  'let n = 0; const held = []; require("node:http").createServer((q, r) => ' +
  `{ held.push(Buffer.alloc(${megabytes} * 1048576, 1)); r.end(String(++n)); }).listen(${port})`;
const ask = (port: number) =>
  `bash -c 'exec 3<>/dev/tcp/127.0.0.1/${port}; printf "GET / HTTP/1.0\r\n\r\n" >&3; tail -n1 <&3'`;
const SMALL = 7070;
const LARGE = 7071;

describe.skipIf(host?.controllers.includes('memory') !== true)(
  'memory that runs short in a container',
  () => {
    let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
    let torpor: TorporProcess;

    beforeAll(async () => {
      dataDir = await makeDataDir();
      await mkdir(join(container, 'server'), { recursive: true });
      // Version 2 allows limits only in a group whose processes are in groups below it.
      const enter = 'echo $$ > "$1/server/cgroup.procs" && mount --bind "$1" "$2" && shift 2 && exec "$@"';
      const program = ['unshare', '-m', 'sh', '-c', enter, 'sh', container, seen, process.execPath] as const;
      torpor = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, 'gvisor', [], program);
    }, 120_000);
    afterAll(async () => {
      await setLimit(undefined);
      await torpor?.end();
      await removeGroups(container);
      await dataDir?.remove();
    }, 120_000);

    const read = (file: string, group = container) => readFile(join(group, file), 'utf8');
    const numberIn = (text: string, name: string) =>
      Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
    /** Without files that the kernel can drop. */
    const usedBytes = async () =>
      Number(await read(files.usage)) - numberIn(await read('memory.stat'), files.cached);
    const setLimit = (bytes: number | undefined) =>
      writeFile(join(container, files.limit), bytes?.toString() ?? (host?.version === 'v1' ? '-1' : 'max'));
    const killedByKernel = async () => {
      let killed = 0;
      for (const group of await groupsIn(container))
        killed += numberIn(await read(files.oom, group), 'oom_kill');
      return killed;
    };

    const start = async (port: number, megabytes: number, memoryMb?: number) => {
      const { sandboxes } = torpor.torpor;
      const resources = memoryMb === undefined ? {} : { resources: { memoryMb } };
      const { id } = await sandboxes.create({ idleSeconds: 86_400, ...resources });
      await sandboxes.execInBackground(id, `node -e '${server(port, megabytes)}'`);
      await sandboxes.exec(id, `until ${ask(port)} 2> /dev/null; do sleep 0.1; done`);
      return id;
    };
    const count = async (id: SandboxId, port = SMALL) =>
      Number((await torpor.torpor.sandboxes.exec(id, ask(port))).stdout);

    it('ends sandboxes that sleep in memory, the oldest first, hurts none that runs, and loses nothing', {
      timeout: 60_000 + ROUNDS * 120_000,
    }, async () => {
      const { sandboxes } = torpor.torpor;
      const sleepers: { readonly id: SandboxId; counted: number }[] = [];
      for (let i = 0; i < SLEEPERS; i++) sleepers.push({ id: await start(SMALL, 0), counted: 1 });
      const running = await start(SMALL, 0);
      let runningCounted = 1;
      for (let round = 0; round < ROUNDS; round++) {
        for (const sleeper of sleepers) {
          expect(await count(sleeper.id)).toBe(++sleeper.counted);
          await sandboxes.pause(sleeper.id);
        }
        const warm = () =>
          Promise.all(sleepers.map(async ({ id }) => (await sandboxes.get(id)).warm === true));
        const large = await start(LARGE, STEP_MB, 2_048);
        expect(await warm()).toEqual(sleepers.map(() => true));
        await setLimit((await usedBytes()) + SPARE_MB * MIB);

        const warmAfter: number[] = [];
        for (let taken = STEP_MB; taken < TAKEN_MB; taken += STEP_MB) {
          expect(await count(large, LARGE)).toBe(taken / STEP_MB + 1);
          expect(await count(running)).toBe(++runningCounted);
          const left = await warm();
          // Those that went to sleep first go first.
          expect(left).toEqual(left.toSorted((a, b) => Number(a) - Number(b)));
          warmAfter.push(left.filter(Boolean).length);
          await new Promise((resolve) => setTimeout(resolve, STEP_EVERY_MS));
        }
        console.log({ round, warmAfter, usedMb: Math.round((await usedBytes()) / MIB) });
        expect(warmAfter.at(-1)).toBeLessThan(SLEEPERS - 1);
        expect(await sandboxes.get(sleepers[0]?.id as SandboxId)).toMatchObject({
          state: 'paused',
          warmReason: 'its memory was needed',
        });
        // With what is left, each wakes and sleeps again.
        for (const sleeper of sleepers) {
          expect(await count(sleeper.id)).toBe(++sleeper.counted);
          await sandboxes.pause(sleeper.id);
        }
        expect(await count(large, LARGE)).toBe(TAKEN_MB / STEP_MB + 1);
        expect(await killedByKernel()).toBe(0);
        await sandboxes.kill(large);
        await setLimit(undefined);
      }
      const { findings } = await torpor.torpor.fsck();
      expect(findings).toEqual([]);
    });
  },
);

/** The group and all below it, the innermost first. */
async function groupsIn(group: string): Promise<string[]> {
  const entries = await readdir(group, { withFileTypes: true }).catch(() => []);
  const below = entries.filter((entry) => entry.isDirectory()).map(({ name }) => groupsIn(join(group, name)));
  return [...(await Promise.all(below)).flat(), group];
}

async function removeGroups(group: string): Promise<void> {
  for (const each of await groupsIn(group)) await rmdir(each).catch(() => {});
}
