import { lstat, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { failureOf } from '@torpor/engine/testing';
import { LayerClaims } from '@torpor/layers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { adoptGvisorLayers } from './adopt-gvisor-layers.ts';
import { openDirectoryStore } from './directory-store.ts';

const LAYER = `lay_${'a'.repeat(20)}` as const;
const OTHER = `lay_${'b'.repeat(20)}` as const;
const CHECKPOINT = `ckpt_${'0'.repeat(20)}` as const;

let data: string;
const at = (...names: string[]) => join(data, ...names);

/** A data directory of version 1 with one layer, which one checkpoint owns. */
beforeEach(async () => {
  data = await mkdtemp(join(tmpdir(), 'adopt-layers-'));
  await mkdir(at('checkpoints', 'sealed', CHECKPOINT), { recursive: true });
  await mkdir(at('gvisor', 'layers', LAYER, 'fs'), { recursive: true });
  await writeFile(at('gvisor', 'layers', LAYER, 'fs', 'file'), 'content');
  await mkdir(at('gvisor', 'owned'));
  await writeFile(
    at('gvisor', 'owned', `${CHECKPOINT}.json`),
    JSON.stringify({ layers: [LAYER], runsc: 'd' }),
  );
});
afterEach(() => rm(data, { recursive: true, force: true }));

async function expectAdopted(): Promise<void> {
  expect(await readFile(at('checkpoints', 'layers', LAYER, 'fs', 'file'), 'utf8')).toBe('content');
  expect(await readdir(at('checkpoints', 'references'))).toEqual([`${CHECKPOINT}.json`]);
  expect(await readdir(at('gvisor'))).toEqual(['layers']);
  await openDirectoryStore({ root: at('checkpoints') });
  const claims = await LayerClaims.open(at('checkpoints', 'references'));
  expect(claims.all()).toEqual([{ layers: [LAYER], runsc: 'd', tools: null }]);
}

describe('a data directory of version 1', () => {
  it('is migrated: its layers and claims are in the checkpoint store', async () => {
    await adoptGvisorLayers(data);
    await expectAdopted();
  });

  it('is migrated once', async () => {
    await adoptGvisorLayers(data);
    await adoptGvisorLayers(data);
    await expectAdopted();
  });

  it.each([
    ['after the layers were moved', () => rename(at('gvisor', 'layers'), at('checkpoints', 'layers'))],
    [
      'after both were moved, before the file was left',
      async () => {
        await rename(at('gvisor', 'layers'), at('checkpoints', 'layers'));
        await rename(at('gvisor', 'owned'), at('checkpoints', 'references'));
      },
    ],
    [
      'after a start that had made the directories of the store',
      async () => {
        await mkdir(at('checkpoints', 'layers'));
        await mkdir(at('checkpoints', 'references'));
      },
    ],
  ])('is adopted when a server died %s', async (_, died) => {
    await died();
    await adoptGvisorLayers(data);
    await expectAdopted();
  });

  it('keeps the layers of both places when there are some in each', async () => {
    await mkdir(at('checkpoints', 'layers', OTHER), { recursive: true });
    await adoptGvisorLayers(data);
    expect((await readdir(at('checkpoints', 'layers'))).sort()).toEqual([LAYER, OTHER]);
  });

  it('is refused when both places have the same layer, and loses neither', async () => {
    await mkdir(at('checkpoints', 'layers', LAYER), { recursive: true });
    expect(await failureOf(adoptGvisorLayers(data))).toMatchObject({ code: 'conflict' });
    expect(await readdir(at('gvisor', 'layers'))).toEqual([LAYER]);
    expect(await readdir(at('checkpoints', 'layers'))).toEqual([LAYER]);
  });

  it('makes a server of an earlier version refuse to start after the migration', async () => {
    await adoptGvisorLayers(data);
    expect((await lstat(at('gvisor', 'layers'))).isFile()).toBe(true);
    await expect(mkdir(at('gvisor', 'layers'), { recursive: true })).rejects.toMatchObject({
      code: 'EEXIST',
    });
  });
});

describe('a data directory without gVisor', () => {
  it('does not change', async () => {
    await rm(at('gvisor'), { recursive: true });
    await adoptGvisorLayers(data);
    expect(await readdir(data)).toEqual(['checkpoints']);
  });
});
