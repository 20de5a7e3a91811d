/** The template of a Kubernetes runtime is the name of an image, which the nodes pull. */
import type { Captured, SealedCheckpoint, TemplateSpec } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export function templateImage({ root }: TemplateSpec, builtIn: string): string {
  if (root.kind === 'builtin') return builtIn;
  if (root.kind === 'image' && root.image.about.reference !== null) {
    const { reference, digest } = root.image.about;
    return reference.includes('@') ? reference : `${reference}@${digest}`;
  }
  throw new TorporError(
    'capability_unsupported',
    'Templates of this runtime are images in a registry that the nodes of the cluster can reach.',
    { hint: 'Push the image, and create the template with its name.' },
  );
}

export function capturedImage(image: string): Captured {
  return {
    parts: { files: true, memory: false },
    needs: { image },
    dependsOn: [],
    external: { location: `image:${image}`, bytes: null, replayable: true },
  };
}

/** Undefined when the checkpoint is no template. */
export function imageOf({ needs }: Pick<SealedCheckpoint, 'needs'>): string | undefined {
  const { image } = needs;
  return typeof image === 'string' ? image : undefined;
}
