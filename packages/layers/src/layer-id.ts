/** The id of a layer: `lay_` and twenty characters of base32. Mount options and directory names carry it. */

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
