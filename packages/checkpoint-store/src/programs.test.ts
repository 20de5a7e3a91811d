import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { programOutput, sha256Of } from '@torpor/host';
import type { ProgramStore } from '@torpor/layers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDirectoryStore } from './directory-store.ts';

let root: string;
let programs: ProgramStore;
beforeEach(async () => {
  root = await files.mkdtemp(join(tmpdir(), 'programs-'));
  programs = (await openDirectoryStore({ root })).layerStore.programs;
});
afterEach(() => files.rm(root, { recursive: true, force: true }));

const at = (...names: string[]) => join(root, 'programs', 'runsc', ...names);
const digest = sha256Of('program');

const add = () =>
  programs.add({ kind: 'runsc', digest }, async (directory) => {
    await files.writeFile(join(directory, 'runsc'), 'program');
    await files.writeFile(join(directory, 'version'), 'release-20260701.0');
  });

describe('the programs of a directory store', () => {
  it('are listed only when they are complete: an earlier version wrote the version of a runsc last', async () => {
    await files.mkdir(at(digest));
    await files.writeFile(at(digest, 'runsc'), 'pro');
    expect(await programs.list('runsc')).toEqual([]);
    await add();
    expect(await programs.list('runsc')).toEqual([digest]);
    await programs.verify({ kind: 'runsc', digest });
  });

  it('are rid of unfinished additions and removals by a sweep, which leaves other files alone', async () => {
    await add();
    for (const name of ['.new-1', '.removing-1', 'b'.repeat(64)]) await files.mkdir(at(name));
    await files.writeFile(at('runsc'), 'put here by an operator');
    await programs.sweep('runsc', new Set([digest]));
    expect((await files.readdir(at())).sort()).toEqual([digest, 'runsc'].sort());
  });

  it.skipIf(process.getuid?.() !== 0)('are not removed while something is mounted in them', async () => {
    await add();
    const [below, outside] = [at(digest, 'below'), join(root, 'outside')];
    for (const directory of [below, outside]) await files.mkdir(directory);
    await files.writeFile(join(outside, 'file'), 'not of the store');
    const { signal } = new AbortController();
    await programOutput('mount', ['--bind', outside, below], { signal });
    try {
      expect(await programs.sweep('runsc', new Set())).toEqual([]);
    } finally {
      await programOutput('umount', [below], { signal });
    }
    expect(await files.readFile(join(outside, 'file'), 'utf8')).toBe('not of the store');
    expect(await programs.sweep('runsc', new Set())).toEqual([digest]);
  });
});
