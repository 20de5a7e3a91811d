import { expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';
import { firstRequests } from './many-clients.ts';

const noGvisor = await whyNoGvisor();

it.skipIf(noGvisor !== null)(
  '200 concurrent requests to a paused gVisor sandbox cause one resume, and all are answered',
  async () => {
    const dataDir = await makeDataDir();
    const server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, 'gvisor');
    try {
      for (let i = 0; i < 3; i++) {
        expect(await firstRequests(server, 200)).toEqual({ answered: 200, resumes: 1, runs: 200 });
      }
    } finally {
      await server.end();
      await dataDir.remove();
    }
  },
);
