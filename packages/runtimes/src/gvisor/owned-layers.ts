/**
 * Which layers a checkpoint owns. Written before they are sealed, so that none is ever sealed for a checkpoint
 * that nobody could find it by; a checkpoint that did not come to be has nothing but this to be cleared by.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { CheckpointId } from '@torpor/protocol';
import { writeWhole } from '../durable.ts';
import { isMissing, writing } from '../storage-failure.ts';
import type { LayerId } from './layers/layer-id.ts';

export class OwnedLayers {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async open(): Promise<void> {
    await writing(this.#directory, () => mkdir(this.#directory, { recursive: true, mode: 0o700 }));
  }

  async set(checkpoint: CheckpointId, layers: readonly LayerId[]): Promise<void> {
    const path = this.#path(checkpoint);
    await writing(path, () => writeWhole(path, JSON.stringify(layers)));
  }

  async of(checkpoint: CheckpointId): Promise<readonly LayerId[]> {
    const text = await readFile(this.#path(checkpoint), 'utf8').catch((thrown: unknown) => {
      if (isMissing(thrown)) return '[]';
      throw thrown;
    });
    return JSON.parse(text) as LayerId[];
  }

  /** Of all checkpoints; undefined when there is one of which that cannot be read. */
  async all(): Promise<ReadonlySet<LayerId> | undefined> {
    const all = new Set<LayerId>();
    for (const name of await readdir(this.#directory)) {
      if (!name.endsWith('.json')) continue;
      try {
        const layers = JSON.parse(await readFile(join(this.#directory, name), 'utf8')) as LayerId[];
        for (const layer of layers) all.add(layer);
      } catch {
        return undefined;
      }
    }
    return all;
  }

  async forget(checkpoint: CheckpointId): Promise<void> {
    await rm(this.#path(checkpoint), { force: true });
  }

  #path(checkpoint: CheckpointId): string {
    return join(this.#directory, `${checkpoint}.json`);
  }
}
