/**
 * Values as the database has them: AES-256-GCM with a key that is derived from the secret of the server. The text is
 * bound to the row: a value that was copied to a row with another host or header cannot be decrypted.
 */
import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';
import { TorporError } from '@torpor/protocol';

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** What a value is bound to. */
export interface BoundTo {
  readonly org: string;
  readonly name: string;
  readonly host: string;
  readonly header: string;
  readonly prefix: string | null;
}

export function encryptionKey(serverSecret: Uint8Array): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', serverSecret, '', 'torpor secrets v1', KEY_BYTES));
}

export function encrypt(
  key: Uint8Array,
  value: string,
  to: BoundTo,
  randomBytes: (n: number) => Uint8Array,
): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(boundText(to));
  const encrypted = Buffer.concat([cipher.update(value, 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), encrypted]).toString('base64');
}

export function decrypt(key: Uint8Array, text: string, to: BoundTo): string {
  const bytes = Buffer.from(text, 'base64');
  const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
  try {
    const decipher = createDecipheriv(ALGORITHM, key, bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(boundText(to)).setAuthTag(tag);
    const decrypted = [decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()];
    return Buffer.concat(decrypted).toString('utf8');
  } catch (cause) {
    throw new TorporError('internal', `The secret ${to.name} cannot be decrypted.`, {
      hint: 'The file "secret" of the data directory is not the one that it was stored with. Set the secret again.',
      cause,
    });
  }
}

/** JSON, because its strings cannot run into one another. */
function boundText({ org, name, host, header, prefix }: BoundTo): Buffer {
  return Buffer.from(JSON.stringify([org, name, host, header, prefix]));
}
