import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ReadOnlyBinds } from './read-only-binds.ts';

const run = promisify(execFile);

describe.skipIf(process.getuid?.() !== 0)('read-only binds', () => {
  let directory = '';
  let source = '';
  let readOnlyBinds: ReadOnlyBinds;

  beforeEach(async () => {
    directory = await realpath(await mkdtemp('/var/tmp/torpor-view-'));
    source = join(directory, 'a source');
    await mkdir(source);
    await writeFile(join(source, 'file'), 'content');
    readOnlyBinds = new ReadOnlyBinds(join(directory, 'view'));
  });

  afterEach(async () => {
    await readOnlyBinds.unmountAll(unhurried);
    await rm(directory, { recursive: true });
  });

  const mounts = async () =>
    (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').filter((line) => line.includes(directory));

  it('shows the current contents, and refuses writes', async () => {
    const mountPoint = await readOnlyBinds.mount(source, unhurried);
    expect(await readFile(join(mountPoint, 'file'), 'utf8')).toBe('content');
    await writeFile(join(source, 'later'), 'x');
    expect((await readdir(mountPoint)).toSorted()).toEqual(['file', 'later']);
    for (const attempt of [
      () => writeFile(join(mountPoint, 'new'), 'x'),
      () => writeFile(join(mountPoint, 'file'), 'x'),
      () => rm(join(mountPoint, 'file')),
      () => mkdir(join(mountPoint, 'd')),
    ]) {
      await expect(attempt()).rejects.toMatchObject({ code: 'EROFS' });
    }
    expect(await readFile(join(source, 'file'), 'utf8')).toBe('content');
  });

  it('cannot be written through a second mount of it', async () => {
    const mountPoint = await readOnlyBinds.mount(source, unhurried);
    const again = join(directory, 'again');
    await mkdir(again);
    await run('mount', ['--bind', mountPoint, again]);
    try {
      await expect(writeFile(join(again, 'new'), 'x')).rejects.toMatchObject({ code: 'EROFS' });
    } finally {
      await run('umount', [again]);
    }
  });

  it('is mounted once, whether this server or the next asks again', async () => {
    const mountPoint = await readOnlyBinds.mount(source, unhurried);
    expect(await readOnlyBinds.mount(source, unhurried)).toBe(mountPoint);
    expect(await new ReadOnlyBinds(join(directory, 'view')).mount(source, unhurried)).toBe(mountPoint);
    expect(await mounts()).toHaveLength(1);
  });

  it('is mounted again when it was made writable, or its source was replaced', async () => {
    const mountPoint = await readOnlyBinds.mount(source, unhurried);
    await run('mount', ['-o', 'remount,bind,rw', mountPoint]);
    await readOnlyBinds.mount(source, unhurried);
    await expect(writeFile(join(mountPoint, 'new'), 'x')).rejects.toMatchObject({ code: 'EROFS' });
    await rm(source, { recursive: true });
    await mkdir(source);
    await writeFile(join(source, 'second'), '');
    await readOnlyBinds.mount(source, unhurried);
    expect(await readdir(mountPoint)).toEqual(['second']);
    expect(await mounts()).toHaveLength(1);
  });

  it('is unmounted when it is hidden, and its source stays', async () => {
    await readOnlyBinds.mount(source, unhurried);
    await readOnlyBinds.unmount(source, unhurried);
    await readOnlyBinds.unmount(source, unhurried);
    expect(await mounts()).toEqual([]);
    expect(await readdir(join(directory, 'view'))).toEqual([]);
    expect(await readFile(join(source, 'file'), 'utf8')).toBe('content');
  });

  it('of a missing directory is an error', async () => {
    await expect(readOnlyBinds.mount(join(directory, 'nothing'), unhurried)).rejects.toMatchObject({
      code: 'internal',
    });
    expect(await mounts()).toEqual([]);
  });
});
