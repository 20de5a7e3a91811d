/**
 * Which sealed layers hold which layers of container images, so that templates share them. A record is only a hint: the layer
 * may have been removed since.
 *
 * ```
 * <data dir>/gvisor/image-layers/<chain>.json
 * ```
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileDurably } from '@torpor/host';
import { isLayerId, type LayerId, type Layers } from '@torpor/layers';
import { z } from 'zod';

const recordSchema = z.object({
  id: z.custom<LayerId>((id) => typeof id === 'string' && isLayerId(id)),
  nonce: z.string(),
});
export type ImageLayerRecord = Readonly<z.infer<typeof recordSchema>>;

export class ImageLayerRecords {
  readonly #directory: string;

  constructor(runtimeDirectory: string) {
    this.#directory = join(runtimeDirectory, 'image-layers');
  }

  /** `chain` is the digest of a layer and all layers below it, in hex. */
  async find(chain: string): Promise<ImageLayerRecord | undefined> {
    const text = await readFile(this.#path(chain), 'utf8').catch(() => '');
    try {
      return recordSchema.parse(JSON.parse(text));
    } catch {
      return undefined;
    }
  }

  async write(chain: string, record: ImageLayerRecord): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await writeFileDurably(this.#path(chain), JSON.stringify(record));
  }

  /** Removes the records of layers that do not exist any more. */
  async prune(layers: Pick<Layers, 'inspect'>): Promise<void> {
    for (const name of await readdir(this.#directory).catch(() => [])) {
      const record = await this.find(name.replace(/\.json$/, ''));
      const isThere =
        record !== undefined && (await layers.inspect(record.id, record.nonce).then(isTrue, isFalse));
      if (!isThere) await rm(join(this.#directory, name), { force: true });
    }
  }

  #path(chain: string): string {
    return join(this.#directory, `${chain}.json`);
  }
}

const isTrue = () => true;
const isFalse = () => false;
