import { expect, it } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { runMemorySoak } from './memory.ts';

const KIB = 1024;

/** The short form of `tests/soak/memory.campaign.test.ts`. It finds large leaks of every sandbox, not small ones. */
it('a killed sandbox leaves no timer, no buffer and little heap', { timeout: 120_000 }, async () => {
  const dataDir = await makeDataDir();
  try {
    const soak = {
      runtime: 'process',
      rounds: 2,
      sandboxesPerRound: 4,
      concurrency: 2,
      isWhole: false,
    } as const;
    const report = await runMemorySoak(dataDir.path, soak);
    console.log(JSON.stringify(report));
    // Each sandbox runs two commands: if both leak a timer, the value is two.
    expect(report.timersPerSandbox).toBeLessThan(1);
    expect(report.bufferBytesPerSandbox).toBeLessThan(64 * KIB);
    // Compiled code counts too, so the limit is high for so few sandboxes.
    expect(report.heapBytesPerSandbox).toBeLessThan(512 * KIB);
  } finally {
    await dataDir.remove();
  }
});
