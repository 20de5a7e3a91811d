import { expect, it } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { runMemorySoak } from './memory.ts';

const KIB = 1024;

/** The short form of `tests/soak/memory.campaign.test.ts`; finds what every sandbox leaves, not what is small. */
it('a sandbox that is gone has left no timer, no buffer and little heap', { timeout: 120_000 }, async () => {
  const dataDir = await makeDataDir();
  try {
    const soak = { runtime: 'process', rounds: 2, sandboxesPerRound: 4, hands: 2, isWhole: false } as const;
    const report = await runMemorySoak(dataDir.path, soak);
    console.log(JSON.stringify(report));
    // Two commands each: a timer left by either would count two.
    expect(report.timersPerSandbox).toBeLessThan(1);
    expect(report.bufferBytesPerSandbox).toBeLessThan(64 * KIB);
    // Code that is compiled on the way counts too, so the bound is wide for so few.
    expect(report.heapBytesPerSandbox).toBeLessThan(512 * KIB);
  } finally {
    await dataDir.remove();
  }
});
