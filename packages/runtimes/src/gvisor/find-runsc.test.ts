import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findRunsc, type RunscPlaces } from './find-runsc.ts';
import { isNewEnough, parseRunscVersion } from './runsc-version.ts';

describe('a usable runsc', () => {
  let top: string;
  let places: Required<RunscPlaces>;

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-f-'));
    places = { path: join(top, 'bin'), dataDir: join(top, 'data'), machineWide: join(top, 'machine') };
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

  const find = async () => (await findRunsc(places, unhurried)).found?.program;

  it('is looked for on the search path, in the data directory and among those of the machine', async () => {
    const machine = await put('machine/0.0~20240729.0-4', '0.0~20240729.0');
    expect(await find()).toBe(machine);
    const own = await put('data/gvisor/runsc', 'release-20240101.0');
    expect(await find()).toBe(own);
    const installed = await put('bin', 'release-20230601.0');
    expect(await find()).toBe(installed);
  });

  it('is the newest of those of the machine', async () => {
    await put('machine/0.0~20240729.0-4', '0.0~20240729.0');
    const newest = await put('machine/0.0~20250106.0-10', '0.0~20250106.0');
    await put('machine/0.0~20250106.0-9', '0.0~20250106.0');

    expect(await find()).toBe(newest);
  });

  it('is not one that is too old, of which the answer speaks', async () => {
    const old = await put('bin', '0.0~20221219.0');

    expect(await findRunsc(places, unhurried)).toEqual({
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

  it('may be nowhere', async () => {
    expect(await findRunsc(places, unhurried)).toMatchObject({ found: null, why: 'runsc is not installed' });
  });
});

describe('the version of runsc', () => {
  it.each([
    ['runsc version release-20240729.0\nspec: 1.1.0-rc.1\n', 20240729, true],
    ['runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n', 20240729, true],
    ['runsc version release-20230601.0\n', 20230601, true],
    ['runsc version 0.0~20221219.0\n', 20221219, false],
    ['runsc version VERSION_MISSING\n', null, false],
  ])('has its day in it: %j', (printed, day, usable) => {
    const version = parseRunscVersion(printed);

    expect(version?.day).toBe(day);
    expect(version !== undefined && isNewEnough(version)).toBe(usable);
  });

  it('is not that of another program', () => {
    expect(parseRunscVersion('runc version 1.1.5\n')).toBeUndefined();
  });
});
