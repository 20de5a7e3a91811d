import { FAULT_POINTS, FAULT_POINTS_BY_START, type FaultPoint } from '@torpor/engine';
import { afterEach, beforeEach, describe, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type CrashedRuntime, crashAt } from './campaign.ts';
import { makeDataDir } from './torpor-process.ts';

const noGvisor = await whyNoGvisor();
const runtimes: [CrashedRuntime, readonly FaultPoint[]][] = [['process', FAULT_POINTS]];
if (noGvisor === null) runtimes.push(['gvisor', FAULT_POINTS_BY_START]);

/** The long form, `npm run test:crash`: every fault point of every operation. */
describe.each(runtimes)(
  'a server with sandboxes in %s that is killed at every fault point',
  (runtime, points) => {
    let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
    beforeEach(async () => {
      dataDir = await makeDataDir();
    });
    afterEach(() => dataDir.remove());

    it.each(points)('%s', { timeout: 120_000 }, async (point) => {
      await crashAt(point, dataDir.path, runtime);
    });
  },
);
