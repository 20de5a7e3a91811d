import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DirectoryWatch } from './directory-watch.ts';

describe('directories that are watched', () => {
  const watch = new DirectoryWatch();
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

  it('are quiet until something comes, goes or changes in one of them', async () => {
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

  it('are never quiet where one cannot be watched', async () => {
    watch.begin([top, join(top, 'none')]);
    expect(await watch.isQuiet()).toBe(false);
  });
});
