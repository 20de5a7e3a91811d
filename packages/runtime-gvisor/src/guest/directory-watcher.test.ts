import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DirectoryWatcher } from './directory-watcher.ts';

describe('watched directories', () => {
  const watch = new DirectoryWatcher();
  let [top, below] = ['', ''];

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-watch-'));
    below = join(top, 'below');
    await mkdir(below);
  });

  afterEach(async () => {
    watch.close();
    await rm(top, { recursive: true });
  });

  it('are quiet until an entry of one of them is added, removed or changed', async () => {
    expect(await watch.isQuiet()).toBe(false);
    for (const change of [
      () => writeFile(join(below, 'new'), ''),
      () => writeFile(join(below, 'new'), 'more'),
      () => rm(join(below, 'new')),
      () => rm(below, { recursive: true }),
    ]) {
      watch.begin([top, below]);
      expect(await watch.isQuiet()).toBe(true);
      await change();
      expect(await watch.isQuiet()).toBe(false);
      expect(await watch.isQuiet()).toBe(false);
    }
  });

  it('are never quiet when one of them cannot be watched', async () => {
    watch.begin([top, join(top, 'none')]);
    expect(await watch.isQuiet()).toBe(false);
  });
});
