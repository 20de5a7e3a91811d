import { FAULT_POINTS, type FaultPoint } from '@torpor/engine';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { crashAt } from './campaign.ts';
import { makeDataDir } from './torpor-process.ts';

/** The short form: the tightest points of what is done most. `npm run test:crash` is the long one. */
const TIGHTEST: readonly FaultPoint[] = [
  'pause.seal-committed',
  'resume.start-started',
  'snapshot.seal-captured',
  'rollback.seal-committed',
];

/** Where memory is at stake too. */
const TIGHTEST_IN_MEMORY: readonly FaultPoint[] = ['pause.seal-captured'];

const noGvisor = await whyNoGvisor();

describe.skipIf(noGvisor !== null)('a server that is killed with sandboxes in gVisor', () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeEach(async () => {
    dataDir = await makeDataDir();
  });
  afterEach(() => dataDir.remove());

  it.each(TIGHTEST_IN_MEMORY)(
    'at %s loses nothing, memory included, and leaves nothing (R85, R112)',
    { timeout: 120_000 },
    async (point) => {
      await crashAt(point, dataDir.path, 'gvisor');
    },
  );
});

describe('a server that is killed', () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeEach(async () => {
    dataDir = await makeDataDir();
  });
  afterEach(() => dataDir.remove());

  it('has at least thirty named places to die at', () => {
    expect(new Set(FAULT_POINTS).size).toBeGreaterThanOrEqual(30);
    expect(FAULT_POINTS).toEqual(expect.arrayContaining([...TIGHTEST]));
  });

  it.each(TIGHTEST)(
    'at %s loses nothing and leaves nothing (R85, R112)',
    { timeout: 60_000 },
    async (point) => {
      await crashAt(point, dataDir.path);
    },
  );
});
