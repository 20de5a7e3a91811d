import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { expect, it, vi } from 'vitest';
import { MetricsSource } from './metrics.ts';

it('reads size, used and free bytes of the disk as `df` shows them', async () => {
  const source = new MetricsSource(() => ({ shared: undefined }), tmpdir());
  // Other programs write to the disk too, so the figures may change between the two readings.
  await vi.waitFor(async () => {
    const shown = execFileSync('df', ['-B1', '--output=size,used,avail', tmpdir()], { encoding: 'utf8' });
    const { diskTotal, diskUsed, diskFree } = await source.read(0, 0);
    expect([diskTotal, diskUsed, diskFree].join(' ')).toBe(shown.trim().split(/\s+/).slice(3).join(' '));
  }, 4_000);
});
