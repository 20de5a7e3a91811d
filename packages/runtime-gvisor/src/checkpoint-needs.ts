/** What a gVisor checkpoint needs to be started again, and what its content directory has. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ContentPart, LayerReference, SealedCheckpoint } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';

/** `base` uses this machine's system directories; `own` brings its own. */
export type RootKind = 'base' | 'own';

export interface GvisorNeeds {
  readonly version: 1;
  /** The template that this is the first checkpoint of; null for a checkpoint of a sandbox. */
  readonly template: string | null;
  readonly root: RootKind;
  /** Newest first. */
  readonly layers: readonly LayerReference[];
  /** The fields below are for the memory image: it can be restored only where all of them are the same. */
  readonly runsc: string;
  readonly processor: string;
  readonly tools: string;
  /** The fingerprint of the system directories, for `base`. */
  readonly system: string | null;
}

export function needsOf(checkpoint: Omit<SealedCheckpoint, 'path'>): GvisorNeeds {
  const needs = checkpoint.needs as unknown as GvisorNeeds;
  if (needs.version === 1 && Array.isArray(needs.layers) && needs.layers.length > 0) return needs;
  throw new TorporError('checkpoint_corrupt', `${checkpoint.id} does not say what it needs.`, {
    checkpointId: checkpoint.id,
  });
}

/** Names at the top of the content directory. */
export const MEMORY = 'memory';
const SECRETS = 'secrets.json';
/** A list of layers that earlier versions left there for people. */
const LAYERS_NOTE = 'layers.json';

/** A start from files reads nothing of the content directory: files are in layers. */
export const MEMORY_ENTRIES: readonly string[] = [MEMORY, SECRETS, LAYERS_NOTE];

/** The parts of a checkpoint with memory, besides its layers. */
export const MEMORY_PARTS: readonly ContentPart[] = [
  { name: 'memory', encoding: 'packed', top: [MEMORY], layers: [] },
  { name: 'secrets', encoding: 'whole', top: [SECRETS], layers: [] },
];

export function layersPart(layers: readonly LayerReference[]): ContentPart {
  return { name: 'layers', encoding: 'whole', top: [], layers };
}

/** Secrets that the processes in a memory image know, and that the server needs to talk to them. */
export interface ImageSecrets {
  /** The agent accepts orders from a server that presents it. */
  readonly credential: string;
}

export async function writeSecrets(content: string, secrets: ImageSecrets): Promise<void> {
  const path = join(content, SECRETS);
  await mapWriteErrors(path, () => writeFile(path, JSON.stringify(secrets), { mode: 0o600 }));
}

export async function readSecrets(checkpoint: SealedCheckpoint): Promise<ImageSecrets> {
  try {
    return JSON.parse(await readFile(join(checkpoint.path ?? '', SECRETS), 'utf8')) as ImageSecrets;
  } catch (cause) {
    const code = isMissing(cause)
      ? 'checkpoint_missing'
      : cause instanceof SyntaxError
        ? 'checkpoint_corrupt'
        : 'checkpoint_unreadable';
    throw new TorporError(code, `The secrets of ${checkpoint.id} cannot be read.`, {
      checkpointId: checkpoint.id,
      cause,
    });
  }
}
