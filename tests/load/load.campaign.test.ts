import { expect, it } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { runLoad } from './load.ts';

/** `npm run test:load`: a hundred sandboxes, twenty concurrent operations, for two minutes. */
it('a hundred sandboxes and twenty workers leave nothing stuck, lost or running', async () => {
  const dataDir = await makeDataDir();
  try {
    const report = await runLoad(dataDir.path, { sandboxes: 100, workers: 20, ms: 120_000 });
    console.log(JSON.stringify(report));
    const [first = 0] = report.memoryMb;
    // Memory after thousands of operations must be close to that after the first hundred.
    expect(report.memoryMb.at(-1)).toBeLessThan(first * 1.5 + 64);
  } finally {
    await dataDir.remove();
  }
});
