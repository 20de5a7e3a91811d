/**
 * The data keys of a store, from a file with one key of 64 hexadecimal digits on each line. The first key encrypts new objects;
 * the others still decrypt older ones. A key is named by a digest of itself, so that it cannot be filed under a wrong name.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isMissing, writeFileDurably } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

export const KEY_ID_BYTES = 8;
const SECRET = /^[0-9a-f]{64}$/i;

export interface DataKey {
  readonly id: string;
  readonly secret: Buffer;
}

export class DataKeys {
  readonly current: DataKey;
  readonly #byId: ReadonlyMap<string, DataKey>;

  private constructor(keys: readonly [DataKey, ...DataKey[]]) {
    this.current = keys[0];
    this.#byId = new Map(keys.map((key) => [key.id, key]));
  }

  /** Throws `invalid_request` for a file that is not one of keys, without repeating its text. */
  static parse(text: string, file: string): DataKeys {
    const lines = text.split('\n').map((line) => line.trim());
    const [first, ...rest] = lines.filter((line) => line !== '' && !line.startsWith('#'));
    if (first === undefined || ![first, ...rest].every((line) => SECRET.test(line))) {
      throw new TorporError('invalid_request', `The file ${file} does not hold data keys.`, {
        hint: 'Each line is a key of 64 hexadecimal digits (openssl rand -hex 32), the current one first.',
      });
    }
    return new DataKeys([keyOf(first), ...rest.map(keyOf)]);
  }

  find(id: string): DataKey | undefined {
    return this.#byId.get(id);
  }
}

function keyOf(hex: string): DataKey {
  const secret = Buffer.from(hex, 'hex');
  const id = createHash('sha256').update('torpor data key\0').update(secret).digest();
  return { id: id.subarray(0, KEY_ID_BYTES).toString('hex'), secret };
}

/** Undefined when the file does not exist. */
export async function readDataKeys(file: string): Promise<DataKeys | undefined> {
  const text = await readFile(file, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw new TorporError('storage_readonly', `The data keys ${file} cannot be read.`, { cause: thrown });
  });
  return text === undefined ? undefined : DataKeys.parse(text, file);
}

/** The name of a key. */
export function dataKeyId(secret: Uint8Array): string {
  return keyOf(Buffer.from(secret).toString('hex')).id;
}

/** Makes a key, in a file that only the server's user can read. */
export async function makeDataKeys(file: string, secret: Uint8Array = randomBytes(32)): Promise<DataKeys> {
  const text = `${Buffer.from(secret).toString('hex')}\n`;
  await writeFileDurably(file, text);
  return DataKeys.parse(text, file);
}
