/**
 * Which checkpoint needs which layers, written down before the layers are sealed. The claims are read once, when the store
 * is opened, and kept in memory: one process at a time works on a store.
 *
 * ```
 * <root>/references/<checkpoint>.json   a sealed record of the claim
 * ```
 *
 * Claims of version 1 are plain JSON without a checksum, and some are the list of layers alone.
 */
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, writeFileDurably } from '@torpor/host';
import { type CheckpointId, isId } from '@torpor/protocol';
import { z } from 'zod';
import { isLayerId, type LayerId } from './layer-id.ts';
import type { LayerClaim } from './layer-store.ts';
import { openSealedText, sealedText } from './sealed-text.ts';

const layersSchema = z.array(z.custom<LayerId>((id) => typeof id === 'string' && isLayerId(id)));
const claimSchema = z.union([
  z.object({ layers: layersSchema, runsc: z.string().nullable() }),
  layersSchema.transform((layers) => ({ layers, runsc: null })),
]);

export class LayerClaims {
  readonly #directory: string;
  /** Undefined for a claim that could not be read. */
  readonly #claims = new Map<CheckpointId, LayerClaim | undefined>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** A directory that is not there has no claims. */
  static async open(directory: string): Promise<LayerClaims> {
    const claims = new LayerClaims(directory);
    const names = await readdir(directory).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      throw thrown;
    });
    for (const name of names) {
      const id = name.replace(/\.json$/, '');
      if (name.endsWith('.json') && isId('ckpt', id)) claims.#claims.set(id, await claims.#read(id));
    }
    return claims;
  }

  ids(): CheckpointId[] {
    return [...this.#claims.keys()];
  }

  has(id: CheckpointId): boolean {
    return this.#claims.has(id);
  }

  async of(id: CheckpointId): Promise<LayerClaim | undefined> {
    return this.#claims.get(id) ?? (this.#claims.has(id) ? this.#readAgain(id) : undefined);
  }

  /** Undefined when one of them cannot be read. */
  async all(): Promise<ReadonlyMap<CheckpointId, LayerClaim> | undefined> {
    const all = new Map<CheckpointId, LayerClaim>();
    for (const id of this.#claims.keys()) {
      const claim = await this.of(id);
      if (claim === undefined) return undefined;
      all.set(id, claim);
    }
    return all;
  }

  async set(id: CheckpointId, claim: LayerClaim): Promise<void> {
    await writeFileDurably(this.path(id), sealedText(claim));
    this.#claims.set(id, claim);
  }

  async remove(id: CheckpointId): Promise<void> {
    await rm(this.path(id), { force: true });
    this.#claims.delete(id);
  }

  /** Somebody may have mended the file, or removed it. */
  async #readAgain(id: CheckpointId): Promise<LayerClaim | undefined> {
    const claim = await this.#read(id);
    this.#claims.set(id, claim);
    return claim;
  }

  async #read(id: CheckpointId): Promise<LayerClaim | undefined> {
    try {
      const text = await readFile(this.path(id), 'utf8');
      return claimSchema.parse(JSON.parse(openSealedText(text) ?? unsealed(text)));
    } catch (thrown) {
      // Removed by hand: then nothing is claimed any more.
      return isMissing(thrown) ? { layers: [], runsc: null } : undefined;
    }
  }

  path(id: CheckpointId): string {
    return join(this.#directory, `${id}.json`);
  }
}

/** A claim of version 1 has one line. A second line belongs to a seal, which then does not fit. */
function unsealed(text: string): string {
  if (text.trimEnd().includes('\n')) throw new Error('The claim does not prove itself.');
  return text;
}
