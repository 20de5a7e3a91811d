import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { adoptDataDirectory, hasEarlierLayout } from './adopt-data-directory.ts';
import { openDirectoryStore } from './directory-store.ts';

const RUNSC = 'a'.repeat(64);
const TOOLS = 'b'.repeat(64);

let data: string;
const at = (...names: string[]) => join(data, ...names);

/** A data directory of the version before programs were in the checkpoint store. */
beforeEach(async () => {
  data = await files.mkdtemp(join(tmpdir(), 'adopt-programs-'));
  for (const path of [
    at('checkpoints', 'layers'),
    at('gvisor', 'runsc', RUNSC),
    at('gvisor', 'guest', TOOLS),
  ])
    await files.mkdir(path, { recursive: true });
  await files.writeFile(at('gvisor', 'layers'), '');
  await files.writeFile(at('gvisor', 'runsc', RUNSC, 'runsc'), 'program');
  await files.writeFile(at('gvisor', 'runsc', RUNSC, 'version'), 'release-20260701.0');
  await files.writeFile(at('gvisor', 'guest', TOOLS, 'manifest.json'), '{}');
});
afterEach(() => files.rm(data, { recursive: true, force: true }));

async function expectAdopted(): Promise<void> {
  const { programs } = (await openDirectoryStore({ root: at('checkpoints') })).layerStore;
  expect(await programs.list('runsc')).toEqual([RUNSC]);
  expect(await programs.list('tools')).toEqual([TOOLS]);
  expect(await files.readFile(at('checkpoints', 'programs', 'runsc', RUNSC, 'runsc'), 'utf8')).toBe(
    'program',
  );
  expect(await hasEarlierLayout(data)).toBe(false);
  // What a running sandbox has in its record, and what an earlier server opens.
  expect(await files.readFile(at('gvisor', 'runsc', RUNSC, 'runsc'), 'utf8')).toBe('program');
  expect(await files.readdir(at('gvisor', 'guest'))).toEqual([TOOLS]);
  expect(await files.readlink(at('gvisor', 'runsc'))).toBe('../checkpoints/programs/runsc');
  expect((await files.readdir(at('gvisor'))).sort()).toEqual(['guest', 'layers', 'runsc']);
}

const prepareLink = () => files.symlink('../checkpoints/programs/runsc', at('gvisor', 'runsc.moved'));
const moveRunsc = async () => {
  await files.mkdir(at('checkpoints', 'programs'));
  await files.rename(at('gvisor', 'runsc'), at('checkpoints', 'programs', 'runsc'));
};

describe('programs of an earlier version', () => {
  it('are moved into the checkpoint store, and found at their old place too', async () => {
    expect(await hasEarlierLayout(data)).toBe(true);
    await adoptDataDirectory(data);
    await expectAdopted();
    await adoptDataDirectory(data);
    await expectAdopted();
  });

  it.each([
    ['the link was prepared', prepareLink],
    [
      'the directory was moved',
      async () => {
        await prepareLink();
        await moveRunsc();
      },
    ],
    [
      'the link was renamed',
      async () => {
        await moveRunsc();
        await files.symlink('../checkpoints/programs/runsc', at('gvisor', 'runsc'));
      },
    ],
    ['a start had made the directories of the store', () => openDirectoryStore({ root: at('checkpoints') })],
  ])('are adopted when a server died after %s', async (_, died) => {
    await died();
    await adoptDataDirectory(data);
    await expectAdopted();
  });

  it('stay reachable for an earlier server that adds another program, and are adopted with it', async () => {
    await adoptDataDirectory(data);
    const other = 'c'.repeat(64);
    // As the earlier version does it.
    await files.mkdir(at('gvisor', 'runsc', other), { recursive: true });
    await files.writeFile(at('gvisor', 'runsc', other, 'version'), 'release-20260101.0');
    await adoptDataDirectory(data);
    const { programs } = (await openDirectoryStore({ root: at('checkpoints') })).layerStore;
    expect(await programs.list('runsc')).toEqual([RUNSC, other]);
  });

  it('are no reason for a link where there are none', async () => {
    await files.rm(at('gvisor', 'runsc'), { recursive: true });
    await adoptDataDirectory(data);
    expect((await files.readdir(at('gvisor'))).sort()).toEqual(['guest', 'layers']);
  });
});
