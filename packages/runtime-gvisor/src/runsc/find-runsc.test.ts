import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isUsable } from '../binaries/releases.mjs';
import { findRunsc, type RunscSearchPaths } from './find-runsc.ts';
import { parseRunscVersion } from './runsc-version.ts';

describe('a usable runsc', () => {
  let top: string;
  let searchPaths: RunscSearchPaths;

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-f-'));
    searchPaths = { path: join(top, 'bin'), dataDir: join(top, 'data'), machineWide: join(top, 'machine') };
  });

  afterEach(() => rm(top, { recursive: true }));

  async function put(directory: string, version: string): Promise<string> {
    const program = join(top, directory, 'runsc');
    await mkdir(join(top, directory), { recursive: true });
    await writeFile(
      program,
      `#!/bin/sh\n[ "$1" = --version ] && echo 'runsc version ${version}' && echo spec: 1\n`,
    );
    await chmod(program, 0o755);
    return program;
  }

  const find = async () => (await findRunsc(searchPaths, unhurried)).found?.program;

  it('is a recent one on the search path, before installed ones', async () => {
    await put('machine/release-20260701.0', 'release-20260701.0');
    await put('data/gvisor/runsc', 'release-20260701.0');
    const installed = await put('bin', 'release-20260105.0');

    expect(await find()).toBe(installed);
  });

  it('is an installed one, before an older one on the search path', async () => {
    const installed = await put('bin', 'release-20240101.0');
    expect(await find()).toBe(installed);
    const machine = await put('machine/0.0~20240729.0-4', '0.0~20240729.0');
    expect(await find()).toBe(machine);
    const own = await put('data/gvisor/runsc', 'release-20240101.0');
    expect(await find()).toBe(own);
  });

  it('is the configured one, and no other when the configured one cannot be used', async () => {
    await put('bin', 'release-20260105.0');
    const configured = await put('own', 'release-20240101.0');
    expect((await findRunsc({ ...searchPaths, runsc: configured }, unhurried)).found?.program).toBe(
      configured,
    );

    const missing = { ...searchPaths, runsc: join(top, 'nowhere', 'runsc') };
    expect(await findRunsc(missing, unhurried)).toMatchObject({
      found: null,
      why: `${missing.runsc} does not run`,
    });
  });

  it('is the newest of those installed for the host', async () => {
    await put('machine/0.0~20240729.0-4', '0.0~20240729.0');
    const newest = await put('machine/0.0~20250106.0-10', '0.0~20250106.0');
    await put('machine/0.0~20250106.0-9', '0.0~20250106.0');
    expect(await find()).toBe(newest);

    const built = await put('machine/release-20260701.0', 'release-20260701.0');
    expect(await find()).toBe(built);
  });

  it('is not one that is too old, which the result names', async () => {
    const old = await put('bin', '0.0~20221219.0');

    expect(await findRunsc(searchPaths, unhurried)).toEqual({
      found: null,
      why: `${old} is too old (0.0~20221219.0)`,
      fix: expect.stringContaining('sudo npm start'),
    });
  });

  it('is not one that does not run', async () => {
    const broken = await put('bin', 'x');
    await writeFile(broken, '#!/bin/sh\nexit 1\n');
    const usable = await put('data/gvisor/runsc', 'release-20240101.0');

    expect(await find()).toBe(usable);
  });

  it('may be missing', async () => {
    expect(await findRunsc(searchPaths, unhurried)).toMatchObject({
      found: null,
      why: 'runsc is not installed',
    });
  });
});

describe('the version of runsc', () => {
  it.each([
    ['runsc version release-20240729.0\nspec: 1.1.0-rc.1\n', 20240729, true],
    ['runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n', 20240729, true],
    ['runsc version release-20230601.0\n', 20230601, true],
    ['runsc version 0.0~20221219.0\n', 20221219, false],
    ['runsc version VERSION_MISSING\n', null, false],
  ])('contains its release date: %j', (printed, releaseDate, usable) => {
    const version = parseRunscVersion(printed);

    expect(version?.releaseDate).toBe(releaseDate);
    expect(version !== undefined && isUsable(version.releaseDate)).toBe(usable);
  });

  it('is not read from another program', () => {
    expect(parseRunscVersion('runc version 1.1.5\n')).toBeUndefined();
  });
});
