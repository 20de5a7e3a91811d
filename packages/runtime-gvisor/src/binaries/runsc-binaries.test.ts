import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openDirectoryStore } from '@torpor/checkpoint-store';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runscBuild } from '../runsc/runsc-version.ts';
import { monthsSince } from './doctor.ts';
import { isRecent, limitsOf } from './releases.mjs';
import { RunscBinaries } from './runsc-binaries.ts';

let top: string;

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-b-'));
});

afterEach(() => rm(top, { recursive: true }));

async function program(name: string, content: string): Promise<string> {
  const path = join(top, name);
  await writeFile(path, content, { mode: 0o755 });
  return path;
}

async function opened(path: string, version: string, oldestDay?: number): Promise<RunscBinaries> {
  const { layerStore } = await openDirectoryStore({ root: join(top, 'store') });
  const binaries = new RunscBinaries(layerStore.programs, oldestDay);
  await binaries.open({ program: path, version });
  return binaries;
}

describe('the runsc programs of a data directory', () => {
  it('keep a program when the original file is overwritten', async () => {
    const path = await program('runsc', 'first');
    const binaries = await opened(path, 'release-20240729.0');
    const { digest } = binaries.current;
    await writeFile(path, 'second');

    expect(await readFile(binaries.find(digest)?.program ?? '', 'utf8')).toBe('first');
  });

  it('keep the old program beside the new one, also for the next server', async () => {
    const before = (await opened(await program('old', 'first'), 'release-20240729.0')).current;
    const binaries = await opened(await program('new', 'second'), 'release-20260701.0');

    expect(binaries.current).toMatchObject({ version: 'release-20260701.0', releaseDate: 20260701 });
    expect(binaries.find(before.digest)).toEqual(before);
  });

  it('remove unused programs, and never the current one', async () => {
    const binaries = await opened(await program('a', 'first'), 'release-20240729.0');
    const first = binaries.current.digest;
    await binaries.adopt({ program: await program('b', 'second'), version: 'release-20250101.0' });
    const second = binaries.current.digest;
    await binaries.adopt({ program: await program('c', 'third'), version: 'release-20260701.0' });

    await binaries.removeUnused(new Set([first]));

    expect(binaries.find(first)).toBeDefined();
    expect(binaries.whyUnusable(second)).toBe('the runsc that wrote it is no longer kept');
    expect(binaries.find(binaries.current.digest)).toEqual(binaries.current);
  });

  it('refuse the memory of a program that is older than the operator allows', async () => {
    const old = (await opened(await program('old', 'first'), 'release-20240729.0')).current.digest;
    const binaries = await opened(await program('new', 'second'), 'release-20260701.0', 20250101);

    expect(binaries.whyUnusable(old)).toContain('older than this server allows');
    expect(binaries.whyUnusable(binaries.current.digest)).toBeUndefined();
  });

  it('replace an incomplete program that a killed server of an earlier version left', async () => {
    const path = await program('runsc', 'whole');
    const unfinished = join(top, 'store', 'programs', 'runsc', await runscBuild(path));
    await mkdir(unfinished, { recursive: true });
    await writeFile(join(unfinished, 'arriving'), 'half');
    const binaries = await opened(path, 'release-20260701.0');

    expect(await readFile(binaries.current.program, 'utf8')).toBe('whole');
    await expect(readFile(join(unfinished, 'arriving'))).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

describe('a version', () => {
  it('has the age of its day', () => {
    expect(monthsSince(20240729, new Date('2026-11-16T00:00:00Z'))).toBe(28);
  });

  it('has limits when it is old or untested', () => {
    expect(isRecent(20240729)).toBe(false);
    expect(limitsOf(20240729)).not.toEqual([]);
    expect(limitsOf(20260701)).toEqual([]);
    expect(limitsOf(20270101)).toEqual(['this version was not tested with Torpor']);
  });
});
