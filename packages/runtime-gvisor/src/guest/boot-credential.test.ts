import { lstat, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { writeBootCredential } from './boot-credential.ts';

let directory = '';
let root = '';

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-credential-'));
  root = join(directory, 'root');
  await mkdir(root);
});

afterEach(() => rm(directory, { recursive: true }));

describe('the credential for a boot', () => {
  it('can be read only by root', async () => {
    await writeBootCredential(root, 'secret');
    expect(await readFile(join(root, '.torpor-credential'), 'utf8')).toBe('secret');
    expect((await lstat(join(root, '.torpor-credential'))).mode & 0o777).toBe(0o400);
  });

  it('replaces what a guest has left at its path, and follows no link', async () => {
    const outside = join(directory, 'outside');
    await writeFile(outside, 'untouched');
    const place = join(root, '.torpor-credential');
    for (const prepare of [
      () => symlink(outside, place),
      () => symlink(join(directory, 'not-there'), place),
      () => mkdir(join(place, 'deep'), { recursive: true }),
      () => writeFile(place, 'old'),
    ]) {
      await rm(place, { recursive: true, force: true });
      await prepare();
      await writeBootCredential(root, 'secret');
      expect((await lstat(place)).isFile()).toBe(true);
      expect(await readFile(place, 'utf8')).toBe('secret');
    }
    expect(await readFile(outside, 'utf8')).toBe('untouched');
    await expect(lstat(join(directory, 'not-there'))).rejects.toThrow('ENOENT');
  });
});
