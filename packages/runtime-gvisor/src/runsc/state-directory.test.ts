import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StateDirectory } from './state-directory.ts';

describe('the state that runsc keeps', () => {
  const STATE = JSON.stringify({ id: 'a', status: 'paused', sandbox: { id: 'a', pid: 12 } });
  let top: string;

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-d-'));
  });

  afterEach(() => rm(top, { recursive: true }));

  it('is read when the file is complete again', async () => {
    const file = join(top, 'a_sandbox:a.state');
    await writeFile(file, '');
    const meanwhile = ['', STATE.slice(0, 20), STATE];
    const clock = { ...systemClock, sleep: () => writeFile(file, meanwhile.shift() ?? STATE) };

    expect(await new StateDirectory(top, clock).read('a')).toEqual({ status: 'paused', pid: 12 });
    expect(meanwhile).toEqual([]);
  });

  it('is an error, and not absent, when the file is never complete', async () => {
    await writeFile(join(top, 'a_sandbox:a.state'), '{');
    const root = new StateDirectory(top, { ...systemClock, sleep: async () => {} });

    await expect(root.read('a')).rejects.toMatchObject({ code: 'unreachable' });
    expect(await root.read('b')).toBeUndefined();
  });

  it('is found and removed by the names of its files', async () => {
    const root = new StateDirectory(top, systemClock);
    for (const file of [
      'a_sandbox:a.state',
      'a_sandbox:a.lock',
      'b_sandbox:b.lock',
      'runsc-c-1.sock',
      'other',
    ]) {
      await writeFile(join(top, file), '');
    }

    expect((await root.containers()).sort()).toEqual(['a', 'b', 'c-1']);
    expect([await root.has('a'), await root.has('b')]).toEqual([true, false]);
    for (const id of ['a', 'b', 'c-1', 'never']) await root.delete(id);
    expect(await readdir(top)).toEqual(['other']);
    expect(await new StateDirectory(join(top, 'none'), systemClock).containers()).toEqual([]);
  });
});
