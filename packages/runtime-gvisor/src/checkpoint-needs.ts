/** What a gVisor checkpoint says it needs to be started again, and what lies in its content directory. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SealedCheckpoint } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';

/** A sealed layer in a stack. */
export interface StackedLayer {
  readonly id: LayerId;
  readonly nonce: string;
  /** The checkpoint that it belongs to, and that is kept as long as anything stands on it. */
  readonly owner: CheckpointId;
}

/** `base` stands for this machine's system directories; any other root brings its own. */
export type RootKind = 'base' | 'own';

export interface GvisorNeeds {
  readonly version: 1;
  /** Null once a sandbox has run on it. */
  readonly template: string | null;
  readonly root: RootKind;
  /** Newest first. */
  readonly layers: readonly StackedLayer[];
  /** The rest is for the memory image: it runs only where all of this is the same. */
  readonly runsc: string;
  readonly processor: string;
  readonly tools: string;
  /** Of the system directories, for `base`. */
  readonly system: string | null;
}

export function needsOf(checkpoint: Omit<SealedCheckpoint, 'path'>): GvisorNeeds {
  const needs = checkpoint.needs as unknown as GvisorNeeds;
  if (needs.version === 1 && Array.isArray(needs.layers) && needs.layers.length > 0) return needs;
  throw new TorporError('checkpoint_corrupt', `${checkpoint.id} does not say what it needs.`, {
    checkpointId: checkpoint.id,
  });
}

/** In the content directory. */
export const MEMORY = 'memory';
const SECRETS = 'secrets.json';
export const LAYERS_NOTE = 'layers.json';

/** A start from files reads nothing of the content directory: files are in layers, and the note is for people. */
export const MEMORY_ENTRIES: readonly string[] = [MEMORY, SECRETS, LAYERS_NOTE];

/** What the processes of a memory image know and nobody else does. */
export interface ImageSecrets {
  /** With which its agent takes orders from the server. */
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
