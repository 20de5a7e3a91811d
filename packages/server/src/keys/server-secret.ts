/** The server's secret. The tokens of sandboxes are derived from it. It lives as long as the data directory. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, writeFileDurably } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const BYTES = 32;

export async function ensureSecret(
  dataDir: string,
  randomBytes: (n: number) => Uint8Array,
): Promise<Uint8Array> {
  const file = join(dataDir, 'secret');
  const kept = await readFile(file, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw new TorporError('storage_readonly', `The secret ${file} cannot be read.`, { cause: thrown });
  });
  if (kept !== undefined) return parsed(file, kept);
  const made = Buffer.from(randomBytes(BYTES));
  await writeFileDurably(file, `${made.toString('hex')}\n`);
  return made;
}

/** A new secret would invalidate all tokens, so a broken file is an error. */
function parsed(file: string, text: string): Uint8Array {
  const secret = Buffer.from(text.trim(), 'hex');
  if (secret.length === BYTES) return secret;
  throw new TorporError('invalid_request', `The file ${file} does not hold the server's secret.`, {
    hint: 'Restore it from a backup, or remove it. Without it all tokens and links of sandboxes become invalid.',
  });
}
