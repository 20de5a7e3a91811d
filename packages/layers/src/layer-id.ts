/** The id of a layer: `lay_` and twenty characters of base32. Mount options and directory names carry it. */
import type { LayerReference } from '@torpor/engine';
import { isId } from '@torpor/protocol';
import { z } from 'zod';

export type LayerId = `lay_${string}`;

const LENGTH = 20;
/** Thirty-two letters, so that each random byte gives every letter with the same probability. */
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';

export function isLayerId(text: string): text is LayerId {
  return /^lay_[a-z2-7]{20}$/.test(text);
}

export function makeLayerId(randomBytes: (n: number) => Uint8Array): LayerId {
  const letters = Array.from(randomBytes(LENGTH), (byte) => ALPHABET[byte % ALPHABET.length]);
  return `lay_${letters.join('')}`;
}

export const layerIdSchema = z.custom<LayerId>((id) => typeof id === 'string' && isLayerId(id));

/** A layer reference as manifests, checkpoints and instance records write it. */
export const layerReferenceSchema: z.ZodType<LayerReference> = z.object({
  id: layerIdSchema,
  nonce: z.string(),
  owner: z.custom<LayerReference['owner']>((id) => isId('ckpt', String(id))),
});
