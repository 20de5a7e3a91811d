/** What the contracts about retention need from an implementation, and how they seal a checkpoint. */
import type { LayerReference } from '@torpor/engine';
import type { ProgramId } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import type { LayeredCheckpointStore } from '../src/directory-store.ts';
import { manifestFor, newCheckpointId } from './small-checkpoint.ts';

export interface RetentionSubject {
  /** Opens the store. A second call opens the same storage again. */
  open(): Promise<LayeredCheckpointStore>;
  /** Changes what is stored without the store. */
  readonly damage: {
    /** Replaces the record of a claim and returns what it was. */
    replaceClaim(id: CheckpointId, text: string): Promise<string>;
    deleteClaim(id: CheckpointId): Promise<void>;
    deleteManifest(id: CheckpointId): Promise<void>;
    /** Leaves the claim. */
    deleteCheckpoint(id: CheckpointId): Promise<void>;
    /** Replaces a file of a program; a missing content deletes the whole program. */
    replaceProgramFile(program: ProgramId, name: string, content?: string): Promise<void>;
  };
  close(): Promise<void>;
}

interface SealOptions {
  readonly layers?: readonly LayerReference[];
  /** The programs that the memory needs. */
  readonly programs?: readonly ProgramId[];
  /** False as in claims of earlier versions, which do not name the tools. */
  readonly claimsPrograms?: boolean;
  readonly memory?: boolean;
}

/** Seals a checkpoint that has layers and programs, and an empty content directory. */
export async function sealNeeding(
  store: LayeredCheckpointStore,
  { layers = [], programs = [], claimsPrograms = true, memory = true }: SealOptions,
  id = newCheckpointId(),
): Promise<CheckpointId> {
  const staging = await store.stage(id);
  const digestOf = (kind: ProgramId['kind']) => programs.find((one) => one.kind === kind)?.digest ?? null;
  const needs = { runsc: digestOf('runsc'), tools: digestOf('tools') };
  const claimed = claimsPrograms ? needs : { runsc: null, tools: null };
  await store.layerStore.claim(id, { layers: layers.map((layer) => layer.id), ...claimed });
  const part = { name: 'layers', encoding: 'whole', top: [], layers } as const;
  const parts = { files: true, memory };
  await store.seal(staging, { ...manifestFor(id), parts, needs, contents: [part] });
  return id;
}
