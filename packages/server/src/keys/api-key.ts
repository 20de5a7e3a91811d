/** A key as text: hex, 32 random bytes of it when we make it. Only its hash is ever written down. */
import { createHash, timingSafeEqual } from 'node:crypto';

/** Clients of E2B's API write their keys with this in front. */
const FORM = /^(?:e2b_)?([0-9a-f]{32,128})$/i;

/** The key itself, however it was written; undefined when it cannot be one. */
export function parseKey(text: string): string | undefined {
  return FORM.exec(text.trim())?.[1]?.toLowerCase();
}

export function makeKey(randomBytes: (n: number) => Uint8Array): string {
  return Buffer.from(randomBytes(32)).toString('hex');
}

/** Plain SHA-256 is enough: a key has 256 random bits, which nobody can go through. */
export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

export function keyIdOf(hash: string): string {
  return `key_${hash.slice(0, 20)}`;
}

/** In a time that does not tell where two hashes begin to differ. */
export function sameHash(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
