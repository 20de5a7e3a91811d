/** An API key is hex text; new keys have 32 random bytes. Only the hash of a key is stored. */
import { createHash, timingSafeEqual } from 'node:crypto';

/** E2B's clients send keys with the prefix `e2b_`. */
const FORM = /^(?:e2b_)?([0-9a-f]{32,128})$/i;

/** The key without its prefix, in lower case. Undefined when the text is not a key. */
export function parseKey(text: string): string | undefined {
  return FORM.exec(text.trim())?.[1]?.toLowerCase();
}

export function makeKey(randomBytes: (n: number) => Uint8Array): string {
  return Buffer.from(randomBytes(32)).toString('hex');
}

/** Plain SHA-256 is enough: 256 random bits cannot be searched. */
export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

export function keyIdOf(hash: string): string {
  return `key_${hash.slice(0, 20)}`;
}

/** Compares in constant time. */
export function sameHash(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
