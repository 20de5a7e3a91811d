/**
 * What a checkpoint owns: its layers, and the runsc that reads its memory. Written before the layers are sealed, so
 * that a layer is never sealed for a checkpoint by which it cannot be found. A checkpoint that was never committed has
 * nothing but this record to be cleared by.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, writeFileDurably } from '@torpor/host';
import type { LayerId } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';

export interface Owned {
  readonly layers: readonly LayerId[];
  /** The digest of the runsc that wrote its memory; null when it has none, or was made before this was recorded. */
  readonly runsc: string | null;
}

export class OwnedLayers {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async open(): Promise<void> {
    await mapWriteErrors(this.#directory, () => mkdir(this.#directory, { recursive: true, mode: 0o700 }));
  }

  async set(checkpoint: CheckpointId, owned: Owned): Promise<void> {
    const path = this.#path(checkpoint);
    await mapWriteErrors(path, () => writeFileDurably(path, JSON.stringify(owned)));
  }

  async of(checkpoint: CheckpointId): Promise<readonly LayerId[]> {
    const text = await readFile(this.#path(checkpoint), 'utf8').catch((thrown: unknown) => {
      if (isMissing(thrown)) return '[]';
      throw thrown;
    });
    return parse(text).layers;
  }

  /** Of all checkpoints; undefined when the record of one cannot be read. */
  async all(): Promise<readonly Owned[] | undefined> {
    const all: Owned[] = [];
    for (const name of await readdir(this.#directory)) {
      if (!name.endsWith('.json')) continue;
      try {
        all.push(parse(await readFile(join(this.#directory, name), 'utf8')));
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

/** Records of earlier versions are the list of layers alone. */
function parse(text: string): Owned {
  const record = JSON.parse(text) as Owned | readonly LayerId[];
  return 'layers' in record ? record : { layers: record, runsc: null };
}
