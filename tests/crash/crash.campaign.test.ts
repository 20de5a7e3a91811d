import { FAULT_POINTS } from '@torpor/engine';
import { afterEach, beforeEach, describe, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtimes/testing/gvisor-world.ts';
import { type CrashedRuntime, crashAt } from './campaign.ts';
import { makeDataDir } from './torpor-process.ts';

const noGvisor = await whyNoGvisor();
const runtimes: readonly CrashedRuntime[] = noGvisor === null ? ['process', 'gvisor'] : ['process'];

/** The long form, `npm run test:crash`: every named point of every operation. */
describe.each(runtimes)('a server with sandboxes in %s that is killed at every named point', (runtime) => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeEach(async () => {
    dataDir = await makeDataDir();
  });
  afterEach(() => dataDir.remove());

  it.each(FAULT_POINTS)('%s', { timeout: 120_000 }, async (point) => {
    await crashAt(point, dataDir.path, runtime);
  });
});
