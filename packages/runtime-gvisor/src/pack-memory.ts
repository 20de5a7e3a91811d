/** Packs the memory of a checkpoint: into its content directory, and into a page layer of its own. */
import { join } from 'node:path';
import type { LayerReference, Staging } from '@torpor/engine';
import type { LayerId } from '@torpor/layers';
import { MEMORY } from './checkpoint-needs.ts';
import type { WrittenImage } from './image/images.ts';
import { readDigests } from './image/page-layer.ts';
import { KnownPages } from './image/page-plan.ts';
import type { RuntimeContext } from './runtime-context.ts';

type PackingContext = Pick<RuntimeContext, 'images' | 'layers'>;

/** The page layers that an image may refer to, and what they have. */
export interface KnownLayers {
  /** Newest first. */
  readonly references: readonly LayerReference[];
  readonly pages: KnownPages;
}

/** `below` are the page layers of the image that the instance was started from. They stay while the instance is there. */
export async function readKnownLayers(
  { layers }: PackingContext,
  below: readonly LayerReference[],
): Promise<KnownLayers> {
  // A layer that is missing, has changed or is known to be damaged must not get another user.
  const looks = await Promise.allSettled(
    below.map(async ({ id, nonce }) => {
      await layers.inspect(id, nonce);
      return layers.isKnownDamaged(id);
    }),
  );
  const references = below.filter((_, index) => {
    const look = looks[index];
    return look?.status === 'fulfilled' && !look.value;
  });
  const digests = await Promise.all(references.map(({ id }) => readDigests(layers.path(id))));
  return { references, pages: await KnownPages.of(digests) };
}

/** Where the pages of an image go, and where they may be already. */
export interface PageTarget {
  /** An open layer that the checkpoint claims. The caller removes it after a failure. */
  readonly own: LayerId;
  readonly known: KnownLayers;
}

/** Every layer that the image may refer to. */
export function layersOf({ own, known }: PageTarget): LayerId[] {
  return [own, ...known.references.map(({ id }) => id)];
}

/** Returns the page layers of the checkpoint, its own first. */
export async function packMemory(
  { images, layers }: PackingContext,
  image: WrittenImage,
  { own, known }: PageTarget,
  { checkpointId, path, memoryForm }: Staging,
  signal: AbortSignal,
): Promise<LayerReference[]> {
  const directory = join(path, MEMORY);
  if (memoryForm === 'whole') {
    await images.pack(image, directory, null, signal);
    await layers.remove(own);
    return [];
  }
  const pages = { own: layers.path(own), known: known.pages };
  const used = await images.pack(image, directory, pages, signal);
  const { nonce } = await layers.seal(own, signal, { recordsSizes: true });
  return [{ id: own, nonce, owner: checkpointId }, ...used.flatMap((index) => known.references[index] ?? [])];
}
