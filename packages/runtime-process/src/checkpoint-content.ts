/**
 * What a checkpoint of this runtime looks like in the store:
 *
 * ```
 * workspace/       the sandbox's home directory, with modes that let the server read it
 * workspace.json   the original modes where they differ, and the named pipes
 * ```
 */
import { lstat, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SealedCheckpoint } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { mapCheckpointReadErrors, mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import { requireCompatible } from './checkpoint-needs.ts';
import type { TreeEntry, TreePath } from './workspace/tree-walk.ts';

export interface WorkspaceRecord {
  /** Original modes of the entries that are sealed with another mode. */
  readonly modes: ReadonlyMap<TreePath, number>;
  readonly fifos: ReadonlyMap<TreePath, number>;
}

/** Pairs and not object keys: a sandbox may name a file `__proto__`. */
const pathsAndModes = z.array(z.tuple([z.string(), z.int()]));
const recordSchema = z.object({ modes: pathsAndModes, fifos: pathsAndModes });

export function workspaceIn(content: string): string {
  return join(content, 'workspace');
}

function recordIn(content: string): string {
  return join(content, 'workspace.json');
}

/** Modes with which the store can read, sync and remove the entry. Set-user-id and similar bits are left out. */
export function sealedModeOf({ stats }: TreeEntry): number {
  const permissions = Number(stats.mode & 0o777n);
  return permissions | (stats.isDirectory() ? 0o700 : 0o400);
}

export function recordOf(entries: readonly TreeEntry[]): WorkspaceRecord {
  const modes = new Map<TreePath, number>();
  const fifos = new Map<TreePath, number>();
  for (const entry of entries) {
    const { path, stats } = entry;
    const mode = Number(stats.mode & 0o7777n);
    if (stats.isFIFO()) fifos.set(path, mode);
    else if ((stats.isFile() || stats.isDirectory()) && mode !== sealedModeOf(entry)) modes.set(path, mode);
  }
  return { modes, fifos };
}

export async function writeRecord(content: string, { modes, fifos }: WorkspaceRecord): Promise<void> {
  const path = recordIn(content);
  const text = JSON.stringify({ modes: [...modes], fifos: [...fifos] } satisfies z.infer<
    typeof recordSchema
  >);
  await mapWriteErrors(path, () => writeFile(path, text, { mode: 0o600 }));
}

/** Checks that this runtime made the checkpoint and that its parts exist. The store checks the contents. */
export async function openContent(
  checkpoint: SealedCheckpoint,
): Promise<{ readonly workspace: string; readonly record: WorkspaceRecord }> {
  requireCompatible(checkpoint);
  const { id: checkpointId, path } = checkpoint;
  if (path === null) {
    throw new TorporError('checkpoint_missing', `Checkpoint ${checkpointId} has no path.`, { checkpointId });
  }
  const workspace = workspaceIn(path);
  const found = await mapCheckpointReadErrors(checkpointId, workspace, () => lstat(workspace));
  if (!found.isDirectory()) throw corrupt(checkpoint, 'its workspace is not a directory');
  const text = await mapCheckpointReadErrors(checkpointId, recordIn(path), () =>
    readFile(recordIn(path), 'utf8'),
  );
  return { workspace, record: parseRecord(checkpoint, text) };
}

function parseRecord(checkpoint: SealedCheckpoint, text: string): WorkspaceRecord {
  try {
    const { modes, fifos } = recordSchema.parse(JSON.parse(text));
    return { modes: new Map(modes), fifos: new Map(fifos) };
  } catch (cause) {
    throw corrupt(checkpoint, 'the record of its workspace is damaged', cause);
  }
}

function corrupt({ id, path }: SealedCheckpoint, why: string, cause?: unknown): TorporError {
  return new TorporError('checkpoint_corrupt', `Checkpoint ${id} is damaged: ${why}.`, {
    checkpointId: id,
    details: { path },
    cause,
  });
}
