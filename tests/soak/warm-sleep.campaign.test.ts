/**
 * Sandboxes sleep and wake again and again, some in memory and some not, because only half of them fit. Each has a counter
 * in memory and a line in a file for every cycle. `TORPOR_CYCLES` sets the number of cycles, `TORPOR_SANDBOXES` that of
 * the sandboxes.
 */
import { MERGE_THRESHOLD } from '@torpor/layers';
import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';
import { type ProbedServer, startProbed } from './memory.ts';
import { storedLayers, storedNames } from './stored-layers.ts';

const CYCLES = Number(process.env['TORPOR_CYCLES'] ?? 120);
const SANDBOXES = Number(process.env['TORPOR_SANDBOXES'] ?? 6);
/** What a small sandbox takes in the budget. */
const MB_PER_SANDBOX = 75;
const HANDS = 3;
const MIB = 1024 * 1024;

/** Counts in memory; each request also adds a line to a file. */
const COUNTER =
  'let n = 0; const fs = require("node:fs"); require("node:http").createServer((q, r) => ' +
  '{ fs.appendFileSync("lines", ++n + String.fromCharCode(10)); r.end(String(n)); }).listen(7070)';
const COUNT = `bash -c 'exec 3<>/dev/tcp/127.0.0.1/7070; printf "GET / HTTP/1.0\r\n\r\n" >&3; tail -n1 <&3'`;

interface Sleeper {
  readonly id: SandboxId;
  counted: number;
}

const noGvisor = await whyNoGvisor();

describe.skipIf(noGvisor !== null)(`${SANDBOXES} sandboxes that sleep and wake`, () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let probed: ProbedServer | undefined;
  /** What is stored when there has never been a sandbox and no server runs. */
  let storedBefore: string[];

  beforeAll(async () => {
    dataDir = await makeDataDir();
    await (await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, 'gvisor')).end();
    storedBefore = await storedNames(dataDir.path);
    probed = await startProbed(dataDir.path, 'gvisor', {
      TORPOR_RUNTIMES_WARM_MEMORY_MB: String(Math.ceil((SANDBOXES / 2) * MB_PER_SANDBOX)),
      // Often, so that checkpoints are removed while sandboxes that are in memory have their layers mounted.
      TORPOR_ENGINE_COLLECT_EVERY_MS: '2000',
    });
  }, 120_000);
  afterAll(async () => {
    await probed?.end();
    await dataDir?.remove();
  }, 120_000);

  it(`lose nothing and leave nothing behind in ${CYCLES} cycles`, { timeout: CYCLES * 10_000 }, async () => {
    if (probed === undefined) throw new Error('There is no server.');
    const { server, readMemory } = probed;
    const { sandboxes } = server.torpor;
    const asleep: Sleeper[] = [];
    for (let i = 0; i < SANDBOXES; i++) {
      const { id } = await sandboxes.create({ idleSeconds: 86_400 });
      await sandboxes.execInBackground(id, `node -e '${COUNTER}'`);
      const { stdout } = await sandboxes.exec(id, `until ${COUNT} 2> /dev/null; do sleep 0.1; done`);
      await sandboxes.pause(id);
      asleep.push({ id, counted: Number(stdout) });
    }

    /** The first call may join a round of the collector that began before. */
    const collect = async () => {
      for (let i = 0; i < 2; i++) await server.torpor.fsck();
    };
    const woken = { warm: 0, cold: 0 };
    const cycle = async (count: number) => {
      let left = count;
      const work = async () => {
        while (left-- > 0) {
          const [sleeper] = asleep.splice(Math.floor(Math.random() * asleep.length), 1);
          if (sleeper === undefined) throw new Error('There are more hands than sandboxes.');
          const { warm } = await sandboxes.get(sleeper.id);
          woken[warm === true ? 'warm' : 'cold']++;
          const { stdout } = await sandboxes.exec(sleeper.id, COUNT);
          expect(Number(stdout)).toBe(++sleeper.counted);
          await sandboxes.pause(sleeper.id);
          asleep.push(sleeper);
        }
      };
      await Promise.all(Array.from({ length: Math.min(HANDS, SANDBOXES) }, work));
      await collect();
      return { memory: await readMemory(), stored: await storedLayers(dataDir.path) };
    };
    const half = Math.floor(CYCLES / 2);
    const [middle, end] = [await cycle(half), await cycle(CYCLES - half)];
    console.dir({ ...woken, middle, end }, { depth: null });
    expect(Math.min(woken.warm, woken.cold)).toBeGreaterThan(0);
    for (const { id, counted } of asleep) {
      const { stdout } = await sandboxes.exec(id, 'wc -l < lines; tail -n1 lines');
      expect(stdout.trim().split(/\s+/).map(Number)).toEqual([counted, counted]);
    }

    for (const { unneeded, largestStack } of [middle.stored, end.stored]) {
      expect(unneeded).toEqual([]);
      // A stack grows by one layer with each cold wake. A wake that finds the threshold begins a merge. A pause may be quicker
      // than the merge, but from twice the threshold on it waits, for ten seconds: a very busy machine needs more tries.
      expect(largestStack).toBeLessThan(3 * MERGE_THRESHOLD);
    }
    // Memory is flat: V8 still compiles and optimises code in the second half, which no number of cycles changes.
    expect(end.memory.heapBytes - middle.memory.heapBytes).toBeLessThan(8 * MIB);
    expect(end.memory.bufferBytes - middle.memory.bufferBytes).toBeLessThan(2 * MIB);
    expect(end.memory.timers - middle.memory.timers).toBeLessThan(SANDBOXES);

    for (const { id } of asleep) await sandboxes.kill(id);
    await collect();
    await probed.end();
    probed = undefined;
    expect(await storedNames(dataDir.path)).toEqual(storedBefore);
  });
});
