import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { firstRequests, measureClientMemory } from './many-clients.ts';

let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
let server: TorporProcess;
beforeAll(async () => {
  dataDir = await makeDataDir();
  server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' });
}, 60_000);
afterAll(async () => {
  await server?.end();
  await dataDir.remove();
});

it('200 concurrent requests to a paused sandbox cause one resume, and all are answered', {
  timeout: 120_000,
}, async () => {
  expect(await firstRequests(server, 200)).toEqual({ answered: 200, resumes: 1, runs: 200 });
});

it.skipIf(process.platform !== 'linux')(
  '1,000 idle connections and 200 held requests take a bounded amount of memory',
  { timeout: 120_000 },
  async () => {
    const { before, withIdle, withHeld, answered } = await measureClientMemory(server, 1_000, 200);
    expect(answered).toBe(200);
    expect(withIdle - before).toBeLessThan(100);
    expect(withHeld - withIdle).toBeLessThan(150);
  },
);
