import { FAULT_POINTS } from '@torpor/engine';
import { afterEach, beforeEach, describe, it } from 'vitest';
import { crashAt } from './campaign.ts';
import { makeDataDir } from './torpor-process.ts';

/** The long form, `npm run test:crash`: every named point of every operation. */
describe('a server that is killed at every named point', () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeEach(async () => {
    dataDir = await makeDataDir();
  });
  afterEach(() => dataDir.remove());

  it.each(FAULT_POINTS)('%s', async (point) => {
    await crashAt(point, dataDir.path);
  });
});
