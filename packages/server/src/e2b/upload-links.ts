/** Links by which E2B's clients upload files: they send no key with an upload, so the link is signed. */
import { createHmac } from 'node:crypto';
import { sameSecret } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';

export const uploadQuerySchema = z.object({
  org: z.string().min(1).max(200),
  expires: z.coerce.number().int(),
  signature: z.string().max(200),
});
export type UploadQuery = z.infer<typeof uploadQuerySchema>;

export class UploadLinks {
  readonly #secret: Uint8Array;

  constructor(secret: Uint8Array) {
    this.#secret = secret;
  }

  query(org: string, hash: string, expires: number): string {
    return new URLSearchParams({
      org,
      expires: String(expires),
      signature: this.#sign(org, hash, expires),
    }).toString();
  }

  /** Throws `unauthenticated` unless the link was made here for this hash and has not expired. */
  check({ org, expires, signature }: UploadQuery, hash: string, now: number): void {
    if (!sameSecret(signature, this.#sign(org, hash, expires)))
      throw new TorporError('unauthenticated', 'The signature of the link is wrong.');
    if (expires < now) throw new TorporError('unauthenticated', 'The link has expired.');
  }

  #sign(org: string, hash: string, expires: number): string {
    const about = JSON.stringify(['template files', org, hash, expires]);
    return createHmac('sha256', this.#secret).update(about).digest('base64url');
  }
}
