import { FAULT_POINTS, type FaultPoint } from '@torpor/engine';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type CrashPoint, crashAt } from './campaign.ts';
import { makeDataDir } from './torpor-process.ts';

/** The short form: the most critical fault points of the most frequent operations. `npm run test:crash` tries all. */
const CRITICAL: readonly FaultPoint[] = [
  'pause.seal-committed',
  'resume.start-started',
  'snapshot.seal-captured',
  'rollback.seal-committed',
];

/** For a runtime that keeps memory. */
const CRITICAL_WITH_MEMORY: readonly CrashPoint[] = ['pause.seal-captured', 'runtime.continued'];

const noGvisor = await whyNoGvisor();

describe.skipIf(noGvisor !== null)('a server that is killed with sandboxes in gVisor', () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeEach(async () => {
    dataDir = await makeDataDir();
  });
  afterEach(() => dataDir.remove());

  it.each(CRITICAL_WITH_MEMORY)(
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

  it('has at least thirty fault points', () => {
    expect(new Set(FAULT_POINTS).size).toBeGreaterThanOrEqual(30);
    expect(FAULT_POINTS).toEqual(expect.arrayContaining([...CRITICAL]));
  });

  it.each(CRITICAL)(
    'at %s loses nothing and leaves nothing (R85, R112)',
    { timeout: 60_000 },
    async (point) => {
      await crashAt(point, dataDir.path);
    },
  );
});
