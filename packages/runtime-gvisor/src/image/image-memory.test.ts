import { lstat, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { memoryForImages } from './image-memory.ts';

describe('the memory for images', () => {
  let shared: string;
  beforeEach(async () => {
    shared = await mkdtemp('/dev/shm/torpor-test-');
  });
  afterEach(() => rm(shared, { recursive: true, force: true }));

  it('is a private directory in memory, with a bound', async () => {
    const memory = await memoryForImages('abcdef', shared);
    expect(memory?.directory).toBe(join(shared, 'torpor-abcdef'));
    expect((await lstat(memory?.directory ?? '')).mode & 0o777).toBe(0o700);
    expect(memory?.bytes).toBeLessThanOrEqual(1024 ** 3);
  });

  it('is not used when another user put a symlink there', async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), 'torpor-elsewhere-'));
    await writeFile(join(elsewhere, 'kept'), '');
    await symlink(elsewhere, join(shared, 'torpor-abcdef'));
    const memory = await memoryForImages('abcdef', shared);
    expect((await lstat(memory?.directory ?? '')).isDirectory()).toBe(true);
    expect((await lstat(join(elsewhere, 'kept'))).isFile()).toBe(true);
    await rm(elsewhere, { recursive: true });
  });

  it('does not exist where there is only a disk', async () => {
    expect(await memoryForImages('abcdef', '/nonexistent')).toBeUndefined();
    expect(await memoryForImages('abcdef', '/proc')).toBeUndefined();
  });
});
