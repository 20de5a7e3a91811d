/** Packs the memory of a checkpoint: into its content directory, and into a page layer of its own. */
import { join } from 'node:path';
import type { LayerReference, Staging } from '@torpor/engine';
import { allDone } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import { MEMORY } from './checkpoint-needs.ts';
import type { WrittenImage } from './image/images.ts';
import type { RuntimeContext } from './runtime-context.ts';

type PackingContext = Pick<RuntimeContext, 'images' | 'layers'>;

/** Where the pages of an image go, and where they may be already. */
export interface PageTarget {
  /** An open layer that the checkpoint claims. It is removed when it is not needed. */
  readonly own: LayerId;
  /** The page layers of the image that the instance was started from, newest first. They stay while the instance is there. */
  readonly below: readonly LayerReference[];
}

/** Every layer that the image may refer to. */
export function layersOf({ own, below }: PageTarget): LayerId[] {
  return [own, ...below.map(({ id }) => id)];
}

/** Returns the page layers of the checkpoint, its own first. */
export async function packMemory(
  ctx: PackingContext,
  image: WrittenImage,
  target: PageTarget,
  { checkpointId, path, memoryForm }: Staging,
  signal: AbortSignal,
): Promise<LayerReference[]> {
  const { images, layers } = ctx;
  const { own } = target;
  const directory = join(path, MEMORY);
  try {
    if (memoryForm === 'whole') {
      await images.pack(image, directory, null, signal);
      await layers.remove(own);
      return [];
    }
    const below = await intactLayers(ctx, target);
    const pages = { own: layers.path(own), below: below.map(({ id }) => layers.path(id)) };
    const used = await images.pack(image, directory, pages, signal);
    const { nonce } = await layers.seal(own, signal, { recordsSizes: true });
    return [{ id: own, nonce, owner: checkpointId }, ...used.flatMap((index) => below[index] ?? [])];
  } catch (thrown) {
    await allDone(images.evict(checkpointId), layers.remove(own));
    throw thrown;
  }
}

/** A layer that is missing or has changed must not get another user. */
async function intactLayers({ layers }: PackingContext, { below }: PageTarget): Promise<LayerReference[]> {
  const looks = below.map(({ id, nonce }) => layers.inspect(id, nonce));
  const found = await Promise.allSettled(looks);
  return below.filter((_, index) => found[index]?.status === 'fulfilled');
}
