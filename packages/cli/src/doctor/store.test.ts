import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkStore } from './store.ts';

const { signal } = new AbortController();

let top: string;
beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-doctor-'));
  await mkdir(join(top, 'objects'));
});
afterEach(() => rm(top, { recursive: true }));

describe('the check of the store', () => {
  it('says nothing when the server has none', async () => {
    expect(await checkStore(top, {}, signal)).toEqual([]);
  });

  it('probes the store that the running server names, and leaves nothing in it', async () => {
    const store = `file://${top}/objects`;
    await writeFile(join(top, 'server.json'), JSON.stringify({ url: 'http://localhost', pid: 1, store }));
    expect(await checkStore(top, {}, signal)).toMatchObject([{ is: 'good', what: 'Store' }]);
    const left = await readdir(join(top, 'objects'), { recursive: true, withFileTypes: true });
    expect(left.filter((entry) => entry.isFile())).toEqual([]);
  });

  it.each([
    ['a directory that is not there', '/not-there', /no such bucket or directory/],
    ['an address that is none', '', /not the address of a store/],
  ])('explains %s', async (_, path, detail) => {
    const TORPOR_STORE = path === '' ? 'bucket' : `file://${top}${path}`;
    const [check] = await checkStore(top, { TORPOR_STORE }, signal);
    expect(check).toMatchObject({ is: 'wrong', todo: expect.any(String) });
    expect(check?.detail).toMatch(detail);
  });
});
