/** Saves the checkpoints of a store in a backup, with the layers and programs that they need. */
import { join } from 'node:path';
import {
  copyCheckpoint,
  copyProgram,
  type ProgramId,
  packLayer,
  type StoreAt,
  storeAt,
} from '@torpor/checkpoint-store';
import { openPostgres, openSqlite } from '@torpor/database';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import type { BackupRecord } from './backup-record.ts';

/** A checkpoint that is not in the backup, and why. */
export interface UnsavedCheckpoint {
  readonly id: CheckpointId;
  /** `memory`: the checkpoint is in the backup, but a program without which its memory cannot be restored is not. */
  readonly part: 'all' | 'memory';
  readonly code: string;
  readonly message: string;
}

interface SavedCheckpoints {
  readonly checkpoints: CheckpointId[];
  readonly layers: BackupRecord['layers'];
  readonly programs: BackupRecord['programs'];
  readonly unsaved: readonly UnsavedCheckpoint[];
  /** Of the content of all checkpoints, and of the programs. */
  readonly bytes: number;
}

/** Copies every sealed checkpoint of a store into a backup, with its layers and programs. */
export async function saveCheckpoints(
  root: string,
  into: string,
  { progress, signal }: { readonly progress: (words: string) => void; readonly signal: AbortSignal },
): Promise<SavedCheckpoints> {
  const [from, to] = [await storeAt(root), await storeAt(into)];
  const { store } = from;
  const ids: CheckpointId[] = [];
  for await (const { id, state } of store.list()) if (state === 'sealed') ids.push(id);
  const checkpoints: CheckpointId[] = [];
  const unsaved: UnsavedCheckpoint[] = [];
  const layers = new Map<string, BackupRecord['layers'][number]>();
  const programs = new Map<string, NeededProgram>();
  let bytes = 0;
  for (const [index, id] of ids.entries()) {
    signal.throwIfAborted();
    progress(`Saving checkpoint ${id} (${index + 1} of ${ids.length})…`);
    try {
      const needed = await copyCheckpoint(id, from, to, signal);
      for (const layer of needed.layers) {
        if (layers.has(layer.id)) continue;
        const packed = await packLayer(store.layerStore.layers, layer.id, into, signal);
        layers.set(layer.id, { id: layer.id, ...packed });
      }
      bytes += (await store.read(id)).entries.reduce((sum, entry) => sum + entry.bytes, 0);
      checkpoints.push(id);
      for (const program of needed.programs) {
        const { by } = programs.get(program.digest) ?? { by: [] };
        programs.set(program.digest, { program, by: [...by, id] });
      }
    } catch (thrown) {
      signal.throwIfAborted();
      // The room of the backup, and not the checkpoint, is the reason.
      if (!isOfCheckpoint(thrown)) throw thrown;
      unsaved.push({ id, part: 'all', code: thrown.code, message: thrown.message });
    }
  }
  progress('Saving programs…');
  const saved = await savePrograms([...programs.values()], from, to, signal);
  return {
    checkpoints,
    layers: [...layers.values()],
    programs: saved.programs,
    unsaved: [...unsaved, ...saved.unsaved],
    bytes: bytes + saved.bytes,
  };
}

/** A program, and the checkpoints whose memory needs it. */
interface NeededProgram {
  readonly program: ProgramId;
  readonly by: readonly CheckpointId[];
}

async function savePrograms(
  needed: readonly NeededProgram[],
  from: StoreAt,
  to: StoreAt,
  signal: AbortSignal,
): Promise<Pick<SavedCheckpoints, 'programs' | 'unsaved' | 'bytes'>> {
  const programs: ProgramId[] = [];
  const unsaved: UnsavedCheckpoint[] = [];
  let bytes = 0;
  for (const { program, by } of needed) {
    signal.throwIfAborted();
    try {
      bytes += await copyProgram(program, from, to, signal);
      programs.push(program);
    } catch (thrown) {
      if (!isOfCheckpoint(thrown)) throw thrown;
      const { code, message } = thrown;
      unsaved.push(...by.map((id) => ({ id, part: 'memory', code, message }) as const));
    }
  }
  return { programs, unsaved, bytes };
}

function isOfCheckpoint(thrown: unknown): thrown is TorporError {
  const codes = ['checkpoint_missing', 'checkpoint_corrupt', 'checkpoint_unreadable', 'version_unsupported'];
  return thrown instanceof TorporError && codes.includes(thrown.code);
}

/** Checkpoints that the database names and the store does not have. They were lost before this backup. */
export async function missingFromStore(
  into: string,
  database: string | undefined,
  { checkpoints, unsaved }: SavedCheckpoints,
): Promise<UnsavedCheckpoint[]> {
  const db =
    database === undefined
      ? await openSqlite({ path: join(into, 'torpor.db') })
      : await openPostgres({ url: database });
  try {
    const rows = await db.query<{ id: CheckpointId }>(
      "SELECT id FROM checkpoints WHERE state = 'sealed' AND external = 0 ORDER BY id",
    );
    const seen = new Set([...checkpoints, ...unsaved.map(({ id }) => id)]);
    return rows
      .filter(({ id }) => !seen.has(id))
      .map(({ id }) => ({
        id,
        part: 'all',
        code: 'checkpoint_missing',
        message: `Checkpoint ${id} is not there.`,
      }));
  } finally {
    await db.close();
  }
}
