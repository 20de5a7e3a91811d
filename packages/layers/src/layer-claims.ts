/**
 * The claims of checkpoints on layers. The claims are read once, when the store is opened, and kept in memory: one process
 * at a time works on a store.
 *
 * ```
 * <root>/references/<checkpoint>.json   the claim, as a checksummed record
 * ```
 *
 * Claims of version 1 are plain JSON without a checksum, and some are the list of layers alone. Claims that were written
 * before the store kept the guest tools do not name the tools.
 */
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, writeFileDurably } from '@torpor/host';
import { type CheckpointId, isId } from '@torpor/protocol';
import { z } from 'zod';
import { checksummedRecord, unwrapChecksummed } from './checksummed-record.ts';
import { type LayerId, layerIdSchema } from './layer-id.ts';
import type { LayerClaim } from './layer-store.ts';

const layersSchema = z.array(layerIdSchema);
const claimSchema = z.union([
  z.object({
    layers: layersSchema,
    runsc: z.string().nullable(),
    tools: z.string().nullable().default(null),
  }),
  layersSchema.transform((layers) => ({ layers, runsc: null, tools: null })),
]);

export class LayerClaims {
  readonly #directory: string;
  readonly #claims = new Map<CheckpointId, LayerClaim>();
  /** Checkpoints whose claim could not be read. */
  readonly #unreadable = new Set<CheckpointId>();
  /** How many checkpoints claim each layer. */
  readonly #counts = new Map<LayerId, number>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Without the directory there are no claims. */
  static async open(directory: string): Promise<LayerClaims> {
    const claims = new LayerClaims(directory);
    const names = await readdir(directory).catch((thrown: unknown) => {
      if (isMissing(thrown)) return [];
      throw thrown;
    });
    for (const name of names) {
      const id = name.replace(/\.json$/, '');
      if (name.endsWith('.json') && isId('ckpt', id)) await claims.#load(id);
    }
    return claims;
  }

  ids(): CheckpointId[] {
    return [...this.#claims.keys(), ...this.#unreadable];
  }

  has(id: CheckpointId): boolean {
    return this.#claims.has(id) || this.#unreadable.has(id);
  }

  /** Undefined when the checkpoint has no claim, or when its claim cannot be read. */
  of(id: CheckpointId): LayerClaim | undefined {
    return this.#claims.get(id);
  }

  all(): readonly LayerClaim[] {
    return [...this.#claims.values()];
  }

  /** Whether every claim, except that of `except`, could be read. Reads unreadable claims again: they may be repaired. */
  async isComplete(except?: CheckpointId): Promise<boolean> {
    for (const id of [...this.#unreadable]) await this.#load(id);
    return [...this.#unreadable].every((id) => id === except);
  }

  /** Whether a checkpoint other than `except` claims the layer, as far as claims could be read. */
  isClaimed(layer: LayerId, except?: CheckpointId): boolean {
    const isOfExcept = except !== undefined && this.of(except)?.layers.includes(layer) === true;
    return (this.#counts.get(layer) ?? 0) > (isOfExcept ? 1 : 0);
  }

  /** The claim counts at once. When it could not be written, the next call or a restart decides. */
  async set(id: CheckpointId, claim: LayerClaim): Promise<void> {
    this.#remember(id, claim);
    await writeFileDurably(this.path(id), checksummedRecord(claim));
  }

  async remove(id: CheckpointId): Promise<void> {
    await rm(this.path(id), { force: true });
    this.#forget(id);
  }

  async #load(id: CheckpointId): Promise<void> {
    const claim = await this.#read(id);
    this.#forget(id);
    if (claim === undefined) this.#unreadable.add(id);
    else this.#remember(id, claim);
  }

  #remember(id: CheckpointId, claim: LayerClaim): void {
    this.#forget(id);
    this.#claims.set(id, claim);
    for (const layer of new Set(claim.layers)) this.#counts.set(layer, (this.#counts.get(layer) ?? 0) + 1);
  }

  #forget(id: CheckpointId): void {
    for (const layer of new Set(this.of(id)?.layers)) {
      const left = (this.#counts.get(layer) ?? 0) - 1;
      if (left > 0) this.#counts.set(layer, left);
      else this.#counts.delete(layer);
    }
    this.#claims.delete(id);
    this.#unreadable.delete(id);
  }

  async #read(id: CheckpointId): Promise<LayerClaim | undefined> {
    try {
      const text = await readFile(this.path(id), 'utf8');
      return claimSchema.parse(JSON.parse(unwrapChecksummed(text) ?? singleLine(text)));
    } catch (thrown) {
      // A claim that was deleted by hand counts as empty.
      return isMissing(thrown) ? { layers: [], runsc: null, tools: null } : undefined;
    }
  }

  path(id: CheckpointId): string {
    return join(this.#directory, `${id}.json`);
  }
}

/** A claim of version 1 has one line and no checksum. Two lines mean a checksummed record whose checksum is wrong. */
function singleLine(text: string): string {
  if (text.trimEnd().includes('\n')) throw new Error('The checksum of the claim is wrong.');
  return text;
}
