/**
 * Encrypts objects before they leave the machine, and decrypts them.
 *
 * ```
 * magic        8 bytes
 * id           8 bytes   of the data key
 * wrap nonce  12 bytes
 * object key  32 bytes   random, encrypted with the data key (AES-256-GCM)
 * wrap tag    16 bytes
 * chunks                 each: up to 1 MiB of content, encrypted with the object key (AES-256-GCM), and a tag of 16 bytes
 * ```
 *
 * The nonce of a chunk is its number and whether it is the last one, so that chunks cannot be swapped, repeated or cut off.
 * The name under which the object is stored is authenticated too, so that an object cannot take the place of another.
 */
import { createCipheriv, createDecipheriv, type DecipherGCM } from 'node:crypto';
import { TorporError } from '@torpor/protocol';
import { type DataKey, type DataKeys, KEY_ID_BYTES } from './data-keys.ts';

const MAGIC = Buffer.from('TORPOBJ1');
const NONCE_BYTES = 12;
const KEY_BYTES = 32;
const TAG_BYTES = 16;
const HEADER_BYTES = MAGIC.length + KEY_ID_BYTES + NONCE_BYTES + KEY_BYTES + TAG_BYTES;
const CHUNK_BYTES = 1024 ** 2;
const CIPHER = 'aes-256-gcm';

type RandomBytes = (count: number) => Uint8Array;

export async function* encrypt(
  name: string,
  content: AsyncIterable<Uint8Array>,
  dataKey: DataKey,
  randomBytes: RandomBytes,
): AsyncGenerator<Buffer> {
  const objectKey = randomBytes(KEY_BYTES);
  const nonce = randomBytes(NONCE_BYTES);
  const wrapping = createCipheriv(CIPHER, dataKey.secret, nonce);
  wrapping.setAAD(Buffer.from(name));
  const wrapped = Buffer.concat([wrapping.update(objectKey), wrapping.final()]);
  yield Buffer.concat([MAGIC, Buffer.from(dataKey.id, 'hex'), nonce, wrapped, wrapping.getAuthTag()]);
  let number = 0;
  for await (const { bytes, isLast } of inChunks(content, CHUNK_BYTES)) {
    const cipher = createCipheriv(CIPHER, objectKey, nonceOf(number++, isLast));
    yield Buffer.concat([cipher.update(bytes), cipher.final(), cipher.getAuthTag()]);
  }
}

/** Why an object cannot be decrypted. */
export class DecryptionFailure extends Error {
  readonly fault: 'lying' | 'wrong_key';

  constructor(fault: DecryptionFailure['fault'], why: string) {
    super(why);
    this.fault = fault;
  }
}

export async function* decrypt(
  name: string,
  stored: AsyncIterable<Uint8Array>,
  dataKeys: DataKeys,
): AsyncGenerator<Buffer> {
  let objectKey: Buffer | undefined;
  let number = 0;
  for await (const { bytes, isLast } of inChunks(stored, CHUNK_BYTES + TAG_BYTES, HEADER_BYTES)) {
    if (objectKey === undefined) {
      objectKey = unwrap(name, bytes, dataKeys);
      if (isLast) throw new DecryptionFailure('lying', 'it ends after its header');
      continue;
    }
    if (bytes.length < TAG_BYTES) throw new DecryptionFailure('lying', 'its last chunk is too short');
    const decipher = createDecipheriv(CIPHER, objectKey, nonceOf(number, isLast));
    yield opened(decipher, bytes, `chunk ${number++} was changed, moved or cut off`);
  }
}

function unwrap(name: string, header: Buffer, dataKeys: DataKeys): Buffer {
  if (header.length < HEADER_BYTES || !header.subarray(0, MAGIC.length).equals(MAGIC))
    throw new DecryptionFailure('lying', 'it does not begin as an encrypted object');
  const nonceAt = MAGIC.length + KEY_ID_BYTES;
  const wrappedAt = nonceAt + NONCE_BYTES;
  const id = header.subarray(MAGIC.length, nonceAt).toString('hex');
  const dataKey = dataKeys.find(id);
  if (dataKey === undefined) throw new DecryptionFailure('wrong_key', `it needs the data key ${id}`);
  const decipher = createDecipheriv(CIPHER, dataKey.secret, header.subarray(nonceAt, wrappedAt));
  decipher.setAAD(Buffer.from(name));
  return opened(decipher, header.subarray(wrappedAt), 'its header was changed, or it is another object');
}

function opened(decipher: DecipherGCM, sealed: Buffer, why: string): Buffer {
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(sealed.subarray(0, -TAG_BYTES)), decipher.final()]);
  } catch {
    throw new DecryptionFailure('lying', why);
  }
}

function nonceOf(number: number, isLast: boolean): Buffer {
  if (number > 0xffffffff) throw new TorporError('invalid_request', 'The object is too large.');
  const nonce = Buffer.alloc(NONCE_BYTES);
  nonce.writeUInt32BE(number, NONCE_BYTES - 5);
  nonce.writeUInt8(isLast ? 1 : 0, NONCE_BYTES - 1);
  return nonce;
}

interface Chunk {
  readonly bytes: Buffer;
  readonly isLast: boolean;
}

/** Chunks of `size` bytes, the first of `first` bytes. The last one may be shorter; content without bytes is one empty chunk. */
async function* inChunks(
  content: AsyncIterable<Uint8Array>,
  size: number,
  first = size,
): AsyncGenerator<Chunk> {
  let wanted = first;
  let waiting: Buffer[] = [];
  let held = 0;
  for await (const piece of content) {
    waiting.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    held += piece.byteLength;
    // One byte more must be there to know that a chunk is not the last one.
    while (held > wanted) {
      const all = waiting.length === 1 ? (waiting[0] as Buffer) : Buffer.concat(waiting);
      yield { bytes: all.subarray(0, wanted), isLast: false };
      waiting = [all.subarray(wanted)];
      held -= wanted;
      wanted = size;
    }
  }
  yield { bytes: Buffer.concat(waiting), isLast: true };
}
