/** What a start needs to know about a checkpoint of this runtime: the `needs` of its record. */
import type { SealedCheckpoint } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

const KIND = 'process';
const VERSION = 1;

/** `template` is null for a checkpoint of a sandbox. */
export function needsOf(template: string | null): Readonly<Record<string, unknown>> {
  return { kind: KIND, version: VERSION, template };
}

/** No process has run in a template yet, so a start from it loses nothing. */
export function isTemplate({ needs }: SealedCheckpoint): boolean {
  return typeof needs['template'] === 'string';
}

/** Throws when another runtime or a newer version made the checkpoint. */
export function requireCompatible({ id: checkpointId, needs }: SealedCheckpoint): void {
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
}
