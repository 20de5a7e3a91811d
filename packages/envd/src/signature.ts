/**
 * Signed file URLs: a link to read or write one file without the access token. The form is E2B's, so that the URLs
 * that its clients make are valid here.
 */
import { createHash, timingSafeEqual } from 'node:crypto';

export interface SignedFile {
  /** The path as in the URL, not yet resolved. */
  readonly path: string;
  readonly operation: 'read' | 'write';
  /** As in the URL; undefined means the sandbox's default user. */
  readonly user?: string | undefined;
  /** Unix seconds; undefined means as long as the token is valid. */
  readonly expiration?: number | undefined;
}

export function makeSignature(file: SignedFile, accessToken: string): string {
  const parts = [file.path, file.operation, file.user ?? '', accessToken];
  if (file.expiration !== undefined) parts.push(String(file.expiration));
  const digest = createHash('sha256').update(parts.join(':')).digest('base64');
  return `v1_${digest.replace(/=+$/, '')}`;
}

/** Why a signature is refused, in the exact words that clients look for. */
export type SignatureRefusal =
  | 'missing signature query parameter'
  | 'invalid signature'
  | 'signature is already expired';

/** Only a genuine signature is reported as expired, so that guessing reveals nothing. */
export function checkSignature(
  file: SignedFile,
  signature: string | undefined,
  accessToken: string,
  nowSeconds: number,
): SignatureRefusal | undefined {
  if (!signature) return 'missing signature query parameter';
  if (!sameSecret(signature, makeSignature(file, accessToken))) return 'invalid signature';
  if (file.expiration !== undefined && file.expiration < nowSeconds) return 'signature is already expired';
  return undefined;
}

/** Compares in constant time, so that neither the length nor the first difference shows. */
export function sameSecret(given: string, expected: string): boolean {
  return timingSafeEqual(digestOf(given), digestOf(expected));
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
