import { describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir } from '../crash/torpor-process.ts';
import { type MemoryReport, runMemorySoak } from './memory.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const noGvisor = await whyNoGvisor();
const runtimes = noGvisor === null ? (['process', 'gvisor'] as const) : (['process'] as const);
const rounds = Number(process.env['TORPOR_ROUNDS'] ?? 5);

/** `TORPOR_ROUNDS` rounds of twenty sandboxes, each with a fork, preview requests, commands, a pause and a wake. */
describe.each(runtimes)('with sandboxes in %s', (runtime) => {
  it('heap and resident memory do not grow with the number of past sandboxes', async () => {
    const dataDir = await makeDataDir();
    try {
      const soak = { runtime, rounds, sandboxesPerRound: 20, concurrency: 5, isWhole: true } as const;
      const report = await runMemorySoak(dataDir.path, soak);
      console.table(rows(report));
      expect(report.timersPerSandbox).toBeLessThan(1);
      expect(report.bufferBytesPerSandbox).toBeLessThan(16 * KIB);
      // Most of the growth is code that V8 still compiles and optimises.
      expect(report.heapBytesPerSandbox).toBeLessThan(64 * KIB);
      // The allocator keeps what it once had, so resident memory rises with the work at once, and then stays.
      const [before = 0, last = 0] = report.readings.slice(-2).map(({ rssBytes }) => rssBytes);
      expect(last - before).toBeLessThan(32 * MIB);
      expect(last).toBeLessThan(500 * MIB);
    } finally {
      await dataDir.remove();
    }
  });
});

function rows({ readings }: MemoryReport) {
  const megabytes = (bytes: number) => Math.round((bytes / MIB) * 10) / 10;
  return readings.map(({ rssBytes, heapBytes, bufferBytes, timers }, round) => ({
    round,
    rssMb: megabytes(rssBytes),
    heapMb: megabytes(heapBytes),
    buffersMb: megabytes(bufferBytes),
    timers,
  }));
}
