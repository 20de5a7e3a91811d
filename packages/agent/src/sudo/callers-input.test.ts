import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openCallersInput } from './callers-input.ts';

let proc = '';

beforeEach(async () => {
  proc = await mkdtemp(join(tmpdir(), 'torpor-proc-'));
  await mkdir(join(proc, '7/fd'), { recursive: true });
  await mkdir(join(proc, '7/fdinfo'));
});

afterEach(() => rm(proc, { recursive: true }));

it('a file is opened at the caller’s position', async () => {
  await writeFile(join(proc, 'file'), '0123456789');
  await symlink(join(proc, 'file'), join(proc, '7/fd/0'));
  await writeFile(join(proc, '7/fdinfo/0'), 'pos:\t4\nflags:\t0100000\n');
  const handle = await openCallersInput(7, proc);
  expect(await handle?.readFile('utf8')).toBe('456789');
  await handle?.close();
});

it('a file with a too large or unknown position is forwarded', async () => {
  await writeFile(join(proc, 'file'), '0123456789');
  await symlink(join(proc, 'file'), join(proc, '7/fd/0'));
  for (const info of ['pos:\t99999999999\n', 'flags: 0\n']) {
    await writeFile(join(proc, '7/fdinfo/0'), info);
    expect(await openCallersInput(7, proc)).toBeUndefined();
  }
});

it('a directory and a missing input are forwarded', async () => {
  expect(await openCallersInput(7, proc)).toBeUndefined();
  await symlink(proc, join(proc, '7/fd/0'));
  expect(await openCallersInput(7, proc)).toBeUndefined();
});
