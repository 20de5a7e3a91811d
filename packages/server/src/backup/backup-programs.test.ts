/** The programs that memory images need, in a backup and after a restore. */
import { mkdir, mkdtemp, readdir, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { adoptDataDirectory, digestOf, openDirectoryStore, type ProgramId } from '@torpor/checkpoint-store';
import { manifestFor, newCheckpointId } from '@torpor/checkpoint-store/testing';
import { claimDataDirectory, migrate, openSqlite } from '@torpor/database';
import { failureOf } from '@torpor/engine/testing';
import { sha256Of } from '@torpor/host';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ALL_MIGRATIONS } from '../migrations.ts';
import { backUpDataDirectory } from './backup.ts';
import { readBackupRecord, writeBackupRecord } from './backup-record.ts';
import { restoreDataDirectory } from './restore.ts';

const { signal } = new AbortController();
const options = { withDatabase: true, progress: () => {}, signal };
const RUNSC: ProgramId = { kind: 'runsc', digest: sha256Of('program') };

let top: string;
let checkpoint: CheckpointId;
const at = (...names: string[]) => join(top, ...names);
const programsIn = async (name: string) =>
  (await openDirectoryStore({ root: at(name, 'checkpoints') })).layerStore.programs;

/** A data directory with one checkpoint that has memory, the runsc that wrote it, and a runsc that nothing needs. */
beforeEach(async () => {
  top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-bp-')));
  await (await claimDataDirectory(at('data'))).release();
  const db = await openSqlite({ path: at('data', 'torpor.db') });
  await migrate(db, ALL_MIGRATIONS);
  await db.close();
  const store = await openDirectoryStore({ root: at('data', 'checkpoints') });
  for (const text of ['program', 'unused']) {
    await store.layerStore.programs.add({ kind: 'runsc', digest: sha256Of(text) }, async (directory) => {
      await writeFile(join(directory, 'runsc'), text);
      await writeFile(join(directory, 'version'), 'release-20260701.0');
    });
  }
  checkpoint = newCheckpointId();
  const staging = await store.stage(checkpoint);
  const draft = { parts: { files: true, memory: true }, needs: { runsc: RUNSC.digest } };
  await store.seal(staging, { ...manifestFor(checkpoint), ...draft });
});
afterEach(() => rm(top, { recursive: true }));

const backUp = () => backUpDataDirectory(at('data'), at('backup'), options);
const restore = () => restoreDataDirectory(at('backup'), at('again'), options);

describe('a backup', () => {
  it('has the programs that the saved memory needs, and a restore brings them back', async () => {
    expect(await backUp()).toMatchObject({ checkpoints: 1, unsaved: [] });
    expect(await readdir(at('backup', 'checkpoints', 'programs', 'runsc'))).toEqual([RUNSC.digest]);
    await restore();
    const programs = await programsIn('again');
    await programs.verify(RUNSC);
    expect(await readFile(join(programs.path(RUNSC), 'version'), 'utf8')).toBe('release-20260701.0');
  });

  it.each([
    ['damaged', 'checkpoint_corrupt', () => writeFile(at('data', ...PROGRAM_FILE), 'other')],
    ['missing', 'checkpoint_missing', () => rm(at('data', ...PROGRAM_FILE, '..'), { recursive: true })],
  ])(
    'has the checkpoint and says that its memory is not saved when its program is %s',
    async (_, code, damage) => {
      await damage();
      expect(await backUp()).toMatchObject({
        checkpoints: 1,
        unsaved: [{ id: checkpoint, part: 'memory', code }],
      });
      await restore();
      expect(await (await programsIn('again')).list('runsc')).toEqual([]);
    },
  );

  it('is refused by a restore when a program in it was changed', async () => {
    await backUp();
    await writeFile(at('backup', ...PROGRAM_FILE), 'other');
    const failure = await failureOf(restore());
    expect([failure.code, failure.message]).toEqual([
      'checkpoint_corrupt',
      expect.stringContaining('is not what was saved'),
    ]);
  });

  it('of version 1, which has the programs beside the store, is restored and adopted', async () => {
    await backUp();
    await mkdir(at('backup', 'gvisor'));
    await rename(at('backup', 'checkpoints', 'programs', 'runsc'), at('backup', 'gvisor', 'runsc'));
    await rm(at('backup', 'checkpoints', 'programs'), { recursive: true });
    const { programs: _, files, ...rest } = await readBackupRecord(at('backup'));
    const paths = ['runsc', 'version'].map((name) => join('gvisor', 'runsc', RUNSC.digest, name));
    const moved = await Promise.all(
      paths.map(async (path) => ({ path, ...(await digestOf(at('backup', path))) })),
    );
    await writeBackupRecord(at('backup'), { ...rest, version: 1, programs: [], files: [...files, ...moved] });
    await restore();
    await adoptDataDirectory(at('again'));
    await (await programsIn('again')).verify(RUNSC);
  });

  it('is not taken of a data directory whose programs are at the place of an earlier version', async () => {
    await mkdir(at('data', 'gvisor', 'runsc'), { recursive: true });
    expect((await failureOf(backUp())).code).toBe('conflict');
  });
});

const PROGRAM_FILE = ['checkpoints', 'programs', 'runsc', RUNSC.digest, 'runsc'];
