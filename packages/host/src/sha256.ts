import { createHash } from 'node:crypto';

/** The sha256 of a text or of bytes, in hexadecimal digits. */
export function sha256Of(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
