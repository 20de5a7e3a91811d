/**
 * Between a live workspace and a sealed one. The live tree always has files of its own; only sealed
 * checkpoints share theirs, with each other, so that an unchanged file costs nothing twice and a sealed
 * one never changes.
 */
import { execFile } from 'node:child_process';
import { lchown, link, lstat, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { SealedCheckpoint, Staging } from '@torpor/engine';
import { errnoOf } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { mapCaptureErrors, mapCheckpointReadErrors } from '@torpor/runtime-shared';
import { type Baseline, type Likeness, liveMark, sealedMark } from './baseline.ts';
import { openContent, recordOf, sealedModeOf, workspaceIn, writeRecord } from './checkpoint-content.ts';
import { copyTree } from './tree-copy.ts';
import { placeOf, type TreeEntry, type TreePath, withTree } from './tree-walk.ts';

const run = promisify(execFile);

/** A file that changed this shortly before a capture may change again without looking different. */
const TOO_RECENT_NS = 100_000_000n;

/** Makes a workspace at `home`, which is not there yet, from a checkpoint. */
export async function materialise(
  checkpoint: SealedCheckpoint,
  home: string,
  owner: number | null,
  signal: AbortSignal,
): Promise<Baseline> {
  const { workspace, record } = await openContent(checkpoint);
  const files = new Map<TreePath, Likeness>();
  await mapCheckpointReadErrors(checkpoint.id, workspace, () =>
    withTree(workspace, signal, async (entries) => {
      await copyTree({
        from: workspace,
        to: home,
        entries,
        modeOf: ({ path, stats }) => record.modes.get(path) ?? Number(stats.mode & 0o7777n),
        owner,
        placed: async ({ path, stats }, to) => {
          files.set(path, { live: liveMark(await lstat(to, { bigint: true })), sealed: sealedMark(stats) });
        },
        beforeClosing: async () => {
          for (const [path, mode] of record.fifos) await makeFifo(placeOf(home, path), mode, owner);
        },
        signal,
      });
    }),
  );
  return { checkpointId: checkpoint.id, workspace, files };
}

/** Brings a workspace in which nothing moves into a staging directory, sharing what the baseline allows. */
export async function capture(
  home: string,
  staging: Staging,
  baseline: Baseline | undefined,
  signal: AbortSignal,
): Promise<Baseline> {
  const to = workspaceIn(staging.path);
  const files = new Map<TreePath, Likeness>();
  await mapCaptureErrors(to, () =>
    withTree(home, signal, async (entries) => {
      const [top] = entries;
      if (top?.stats.isDirectory() !== true) {
        throw new TorporError('conflict', 'The workspace of the sandbox is not a directory any more.');
      }
      // First, so that its time tells which files are too recent, by the clock that also stamps them.
      await writeRecord(staging.path, recordOf(entries));
      const began = (await lstat(staging.path, { bigint: true })).ctimeNs;
      await copyTree({
        from: home,
        to,
        entries,
        modeOf: sealedModeOf,
        owner: null,
        ...(baseline === undefined ? {} : { reuse: (entry, place) => shareSealed(baseline, entry, place) }),
        placed: async ({ path, stats }, place) => {
          if (began - stats.ctimeNs < TOO_RECENT_NS) return;
          files.set(path, {
            live: liveMark(stats),
            sealed: sealedMark(await lstat(place, { bigint: true })),
          });
        },
        signal,
      });
    }),
  );
  return { checkpointId: staging.checkpointId, workspace: null, files };
}

/** Why a sealed file cannot be shared although it is unchanged; then it is copied. */
const CANNOT_SHARE: readonly (string | undefined)[] = [
  'ENOENT',
  'ENOTDIR',
  'EMLINK',
  'EXDEV',
  'EPERM',
  'ENOTSUP',
];

async function shareSealed(baseline: Baseline, { path, stats }: TreeEntry, to: Buffer): Promise<boolean> {
  const likeness = baseline.files.get(path);
  if (baseline.workspace === null || likeness?.live !== liveMark(stats)) return false;
  try {
    await link(placeOf(baseline.workspace, path), to);
  } catch (thrown) {
    if (CANNOT_SHARE.includes(errnoOf(thrown))) return false;
    throw thrown;
  }
  // Nothing should ever change there, but what did is not carried on into another checkpoint.
  if (sealedMark(await lstat(to, { bigint: true })) === likeness.sealed) return true;
  await rm(to);
  return false;
}

/** Only names that are text can be given to another program; no tool gives a fifo any other. */
async function makeFifo(place: Buffer, mode: number, owner: number | null): Promise<void> {
  const path = place.toString('utf8');
  if (!Buffer.from(path).equals(place)) return;
  await run('mkfifo', ['-m', mode.toString(8), '--', path]);
  if (owner !== null) await lchown(path, owner, owner);
}

/** Writes dirty pages of the file system back. After it, a write through a mapping is noticed again. */
export async function syncFileSystem(path: string, signal: AbortSignal): Promise<boolean> {
  const done = await run('sync', ['-f', path], { signal }).then(
    () => true,
    () => false,
  );
  signal.throwIfAborted();
  return done;
}
