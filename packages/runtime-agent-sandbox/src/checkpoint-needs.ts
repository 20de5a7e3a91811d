/** What a checkpoint of this runtime is: an image (a template), or a suspended Sandbox with its volume. */
import type { Captured, SealedCheckpoint } from '@torpor/engine';
import { imageOf } from '@torpor/pods';
import { type CheckpointId, TorporError } from '@torpor/protocol';

export type SandboxCheckpoint =
  | { readonly is: 'template'; readonly image: string }
  /** The next start goes on with the same volume, which uses the checkpoint up. */
  | {
      readonly is: 'suspended';
      /** Undefined in checkpoints of a server that knew only one namespace. */
      readonly namespace: string | undefined;
      readonly name: string;
      readonly uid: string;
      readonly image: string;
    };

export function requireNeeds(checkpoint: SealedCheckpoint): SandboxCheckpoint {
  const image = imageOf(checkpoint);
  const { namespace, sandbox: name, uid } = checkpoint.needs;
  if (image !== undefined && typeof name === 'string' && typeof uid === 'string') {
    return {
      is: 'suspended',
      namespace: typeof namespace === 'string' ? namespace : undefined,
      name,
      uid,
      image,
    };
  }
  if (image !== undefined) return { is: 'template', image };
  throw new TorporError('checkpoint_corrupt', 'The record of the checkpoint does not say what it is.', {
    checkpointId: checkpoint.id,
  });
}

export function capturedSandbox(namespace: string, name: string, uid: string, image: string): Captured {
  return {
    parts: { files: true, memory: false },
    needs: { namespace, sandbox: name, uid, image },
    dependsOn: [],
    external: { location: `sandbox:${namespace}/${name}`, bytes: null, replayable: false },
  };
}

export function missing(checkpointId: CheckpointId, why: string): TorporError {
  return new TorporError('checkpoint_missing', `The cluster no longer has the checkpoint: ${why}.`, {
    checkpointId,
  });
}
