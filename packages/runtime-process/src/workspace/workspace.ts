/**
 * Copies a workspace from a sealed checkpoint and into a new one. A live workspace never shares files with a checkpoint,
 * so a sealed file never changes. Sealed checkpoints share unchanged files with each other by hard links.
 */
import { lchown, link, lstat, rm } from 'node:fs/promises';
import type { SealedCheckpoint, Staging } from '@torpor/engine';
import { errnoOf, programOutput, rejectOnAbort } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { mapCaptureErrors, mapCheckpointReadErrors } from '@torpor/runtime-shared';
import { openContent, recordOf, sealedModeOf, workspaceIn, writeRecord } from '../checkpoint-content.ts';
import { type Baseline, liveFingerprint, sealedFingerprint, type UnchangedFileRecord } from './baseline.ts';
import { copyTree } from './tree-copy.ts';
import { placeOf, type TreeEntry, type TreePath, withTree } from './tree-walk.ts';

/** A file that changed so shortly before a capture may change again within the same timestamp. */
const TOO_RECENT_NS = 100_000_000n;

/** Creates a workspace at `home`, which must not exist yet, from a checkpoint. */
export async function restoreWorkspace(
  checkpoint: SealedCheckpoint,
  home: string,
  owner: number | null,
  signal: AbortSignal,
): Promise<Baseline> {
  const { workspace, record } = await openContent(checkpoint);
  const files = new Map<TreePath, UnchangedFileRecord>();
  await mapCheckpointReadErrors(checkpoint.id, workspace, () =>
    withTree(workspace, signal, async (entries) => {
      await copyTree({
        from: workspace,
        to: home,
        entries,
        modeOf: ({ path, stats }) => record.modes.get(path) ?? Number(stats.mode & 0o7777n),
        owner,
        placed: async ({ path, stats }, to) => {
          files.set(path, {
            live: liveFingerprint(await lstat(to, { bigint: true })),
            sealed: sealedFingerprint(stats),
          });
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

/** Copies a frozen workspace into a staging directory, and links the files that the baseline says are unchanged. */
export async function captureWorkspace(
  home: string,
  staging: Staging,
  baseline: Baseline | undefined,
  signal: AbortSignal,
): Promise<Baseline> {
  const to = workspaceIn(staging.path);
  const files = new Map<TreePath, UnchangedFileRecord>();
  await mapCaptureErrors(to, () =>
    withTree(home, signal, async (entries) => {
      const [top] = entries;
      if (top?.stats.isDirectory() !== true) {
        throw new TorporError('conflict', 'The workspace of the sandbox is no longer a directory.');
      }
      // Written first: its ctime tells which files are too recent, by the same clock that sets their times.
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
            live: liveFingerprint(stats),
            sealed: sealedFingerprint(await lstat(place, { bigint: true })),
          });
        },
        signal,
      });
    }),
  );
  return { checkpointId: staging.checkpointId, workspace: null, files };
}

/** Errors of linking an unchanged sealed file after which the file is copied instead. */
const UNSHAREABLE: readonly (string | undefined)[] = [
  'ENOENT',
  'ENOTDIR',
  'EMLINK',
  'EXDEV',
  'EPERM',
  'ENOTSUP',
];

async function shareSealed(baseline: Baseline, { path, stats }: TreeEntry, to: Buffer): Promise<boolean> {
  const unchanged = baseline.files.get(path);
  if (baseline.workspace === null || unchanged?.live !== liveFingerprint(stats)) return false;
  try {
    await link(placeOf(baseline.workspace, path), to);
  } catch (thrown) {
    if (UNSHAREABLE.includes(errnoOf(thrown))) return false;
    throw thrown;
  }
  // A sealed file should never change. If it did, the change must not spread to another checkpoint.
  if (sealedFingerprint(await lstat(to, { bigint: true })) === unchanged.sealed) return true;
  await rm(to);
  return false;
}

/** `mkfifo` gets the name as UTF-8 text, so a pipe with another name is left out. No known tool creates such names. */
async function makeFifo(place: Buffer, mode: number, owner: number | null): Promise<void> {
  const path = place.toString('utf8');
  if (!Buffer.from(path).equals(place)) return;
  await programOutput('mkfifo', ['-m', mode.toString(8), '--', path]);
  if (owner !== null) await lchown(path, owner, owner);
}

/** Writes dirty pages of the file system back. After this, a write through a mapping changes the file's times again. */
export async function syncFileSystem(path: string, signal: AbortSignal): Promise<boolean> {
  const done = programOutput('sync', ['-f', path]).then(
    () => true,
    () => false,
  );
  // A sync on a hanging disk cannot be killed, so an abort does not wait for its end.
  return rejectOnAbort(done, signal);
}
