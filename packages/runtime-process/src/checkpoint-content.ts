/**
 * What a checkpoint of this runtime looks like in the store:
 *
 * ```
 * workspace/       the sandbox's home directory, readable for us whatever its modes were
 * workspace.json   the modes that had to give way for that, and the fifos
 * ```
 */
import { lstat, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SealedCheckpoint } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { mapCheckpointReadErrors, mapWriteErrors } from '@torpor/runtime-shared';
import type { TreeEntry, TreePath } from './tree-walk.ts';

const KIND = 'process';
const VERSION = 1;

export interface WorkspaceRecord {
  /** True modes of the entries that are sealed with another one. */
  readonly modes: ReadonlyMap<TreePath, number>;
  readonly fifos: ReadonlyMap<TreePath, number>;
}

/** What goes into `Captured.needs`. A template has run nothing yet, so a start from it loses nothing. */
export function needsOf(template: string | null): Readonly<Record<string, unknown>> {
  return { kind: KIND, version: VERSION, template };
}

export function isTemplate({ needs }: SealedCheckpoint): boolean {
  return typeof needs['template'] === 'string';
}

export function workspaceIn(content: string): string {
  return join(content, 'workspace');
}

function recordIn(content: string): string {
  return join(content, 'workspace.json');
}

/** Modes with which the store can read, sync and remove it, and which mean nothing to anybody else. */
export function sealedModeOf({ stats }: TreeEntry): number {
  const plain = Number(stats.mode & 0o777n);
  return plain | (stats.isDirectory() ? 0o700 : 0o400);
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
  // Pairs and not keys: a sandbox may name a file `__proto__`.
  const text = JSON.stringify({ modes: [...modes], fifos: [...fifos] });
  await mapWriteErrors(path, () => writeFile(path, text, { mode: 0o600 }));
}

/** Checks that the checkpoint is one of ours and looks whole; contents are the store's to check. */
export async function openContent(
  checkpoint: SealedCheckpoint,
): Promise<{ readonly workspace: string; readonly record: WorkspaceRecord }> {
  const { id: checkpointId, needs, path } = checkpoint;
  if (needs['kind'] !== KIND) {
    throw new TorporError(
      'checkpoint_incompatible',
      `Checkpoint ${checkpointId} was made by another runtime.`,
      {
        checkpointId,
      },
    );
  }
  if (needs['version'] !== VERSION) {
    throw new TorporError('version_unsupported', `Checkpoint ${checkpointId} was made by a newer version.`, {
      checkpointId,
    });
  }
  if (path === null) {
    throw new TorporError('checkpoint_missing', `Checkpoint ${checkpointId} has no place.`, { checkpointId });
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
  let found: { readonly modes?: unknown; readonly fifos?: unknown } | null;
  try {
    found = JSON.parse(text);
  } catch (cause) {
    throw corrupt(checkpoint, 'the record of its workspace is damaged', cause);
  }
  if (isPairs(found?.modes) && isPairs(found?.fifos)) {
    return { modes: new Map(found.modes), fifos: new Map(found.fifos) };
  }
  throw corrupt(checkpoint, 'the record of its workspace is not complete');
}

function isPairs(value: unknown): value is [TreePath, number][] {
  return (
    Array.isArray(value) &&
    value.every((pair) => Array.isArray(pair) && typeof pair[0] === 'string' && Number.isInteger(pair[1]))
  );
}

function corrupt({ id, path }: SealedCheckpoint, why: string, cause?: unknown): TorporError {
  return new TorporError('checkpoint_corrupt', `Checkpoint ${id} is damaged: ${why}.`, {
    checkpointId: id,
    details: { path },
    cause,
  });
}
