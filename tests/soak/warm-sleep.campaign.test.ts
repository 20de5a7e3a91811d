/**
 * Sandboxes sleep and wake again and again, some in memory and some not, because only half of them fit. Each has a counter
 * in memory and a line in a file for every cycle. `TORPOR_CYCLES` sets the number of cycles, `TORPOR_SANDBOXES` that of
 * the sandboxes.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const CYCLES = Number(process.env['TORPOR_CYCLES'] ?? 120);
const SANDBOXES = Number(process.env['TORPOR_SANDBOXES'] ?? 6);
/** What a small sandbox takes in the budget. */
const MB_PER_SANDBOX = 75;
const HANDS = 3;

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
  let server: TorporProcess;

  beforeAll(async () => {
    dataDir = await makeDataDir();
    const budget = String(Math.ceil((SANDBOXES / 2) * MB_PER_SANDBOX));
    const env = { TORPOR_RUNTIMES_WARM_MEMORY_MB: budget, TORPOR_LOG_LEVEL: 'error' };
    server = await startTorpor(dataDir.path, env, 'gvisor');
  }, 120_000);
  afterAll(async () => {
    await server?.end();
    await dataDir?.remove();
  }, 120_000);

  const layers = () => readdir(join(dataDir.path, 'checkpoints', 'layers'));
  const containers = () => readdir(join(dataDir.path, 'gvisor', 'instances'));
  const residentMb = async () => {
    const status = await readFile(`/proc/${server.pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) / 1024;
  };

  it(`lose nothing and leave nothing behind in ${CYCLES} cycles`, { timeout: CYCLES * 10_000 }, async () => {
    const { sandboxes, checkpoints } = server.torpor;
    const asleep: Sleeper[] = [];
    for (let i = 0; i < SANDBOXES; i++) {
      const { id } = await sandboxes.create({ idleSeconds: 86_400 });
      await sandboxes.execInBackground(id, `node -e '${COUNTER}'`);
      const { stdout } = await sandboxes.exec(id, `until ${COUNT} 2> /dev/null; do sleep 0.1; done`);
      await sandboxes.pause(id);
      asleep.push({ id, counted: Number(stdout) });
    }
    const woken = { warm: 0, cold: 0 };
    const before = await residentMb();
    let left = CYCLES;
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
    for (const { id, counted } of asleep) {
      const { stdout } = await sandboxes.exec(id, 'wc -l < lines; tail -n1 lines');
      expect(stdout.trim().split(/\s+/).map(Number)).toEqual([counted, counted]);
    }
    console.log({ ...woken, residentMb: [before, await residentMb()] });
    expect(Math.min(woken.warm, woken.cold)).toBeGreaterThan(0);

    for (const { id } of asleep) {
      const { items } = await sandboxes.checkpoints(id);
      await sandboxes.kill(id);
      for (const checkpoint of items) await checkpoints.delete(checkpoint.id).catch(() => {});
    }
    await server.torpor.fsck();
    expect(await containers()).toEqual([]);
    // Only the layers of the template and of pre-created containers are left.
    expect((await layers()).length).toBeLessThan(SANDBOXES + 16);
  });
});
