import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FAULT_POINTS } from '@torpor/engine';
import { afterEach, beforeEach, describe, it } from 'vitest';
import { crashAt } from './campaign.ts';

/** The long form, `npm run test:crash`: every named point of every operation. */
describe('a server that is killed at every named point', () => {
  let dataDir: string;
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'torpor-crash-'));
  });
  afterEach(() => rm(dataDir, { recursive: true }));

  it.each(FAULT_POINTS)('%s', async (point) => {
    await crashAt(point, dataDir);
  });
});
