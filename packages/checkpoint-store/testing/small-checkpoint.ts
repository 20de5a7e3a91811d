/** Makes a small checkpoint for the tests of stores. */
import { randomBytes } from 'node:crypto';
import * as files from 'node:fs/promises';
import { join } from 'node:path';
import type { CheckpointStore, ManifestDraft, Staging, StoredCheckpoint, StoredSeal } from '@torpor/engine';
import { type CheckpointId, makeId } from '@torpor/protocol';

export function newCheckpointId(): CheckpointId {
  return makeId('ckpt', randomBytes);
}

/** A manifest as the engine would give it to `seal`. */
export function manifestFor(checkpointId: CheckpointId): ManifestDraft {
  return {
    checkpointId,
    sandboxId: 'sbx_00000000000000000000',
    parentId: null,
    runtime: 'process',
    createdAt: 1_700_000_000_000,
    parts: { files: true, memory: false },
    needs: { build: 'release-1', layers: ['a', 'b'] },
  };
}

export async function listed(store: CheckpointStore): Promise<StoredCheckpoint[]> {
  const all: StoredCheckpoint[] = [];
  for await (const one of store.list()) all.push(one);
  return all;
}

/** A small tree: `a.txt` (5 bytes), `dir/b.txt` (4 bytes), `dir/link` to `../a.txt`, `empty/`. */
export async function fill(staging: Staging): Promise<void> {
  await files.writeFile(join(staging.path, 'a.txt'), 'hello');
  await files.mkdir(join(staging.path, 'dir'));
  await files.writeFile(join(staging.path, 'dir/b.txt'), 'four');
  await files.symlink('../a.txt', join(staging.path, 'dir/link'));
  await files.mkdir(join(staging.path, 'empty'));
}

export async function sealSmall(store: CheckpointStore, id: CheckpointId): Promise<StoredSeal> {
  const staging = await store.stage(id);
  await fill(staging);
  return store.seal(staging, manifestFor(id));
}
