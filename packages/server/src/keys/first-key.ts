/** The first key of a server: configured by the operator, or made once and stored in the data directory. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, writeFileDurably } from '@torpor/host';
import { DEFAULT_ORG, TorporError } from '@torpor/protocol';
import { hashKey, makeKey, parseKey } from './api-key.ts';
import { findKey, insertKey, lockServiceKeys, markRevoked, markValid } from './key-table.ts';
import { type KeyContext, rowOf } from './manage.ts';

/** The name of the configured key. A different value at the next start replaces it. */
const CONFIGURED = 'TORPOR_API_KEY';
const FIRST = 'first';

export interface FirstKey {
  /** The file that holds the key; null for a configured key. */
  readonly file: string | null;
  /** The key, when this start has made it and has not printed it yet. */
  readonly made: string | null;
}

export function keyFileOf(dataDir: string): string {
  return join(dataDir, 'api-key');
}

export async function ensureFirstKey(
  ctx: KeyContext,
  dataDir: string,
  onPurpose: string | undefined,
): Promise<FirstKey> {
  if (onPurpose !== undefined) {
    await registerKey(ctx, parseConfiguredKey(onPurpose), CONFIGURED);
    return { file: null, made: null };
  }
  const file = keyFileOf(dataDir);
  const kept = await readKeyFile(file);
  if (kept !== undefined) {
    // A revoked key stays revoked, although the file holds it.
    if ((await findKey(ctx.db, hashKey(kept))) === undefined) await registerKey(ctx, kept, FIRST);
    return { file, made: null };
  }
  const key = makeKey(ctx.randomBytes);
  // The file is written first: a key that only the table has would be of no use.
  await writeFileDurably(file, `${key}\n`);
  await registerKey(ctx, key, FIRST);
  return { file, made: key };
}

export function parseConfiguredKey(text: string): string {
  const key = parseKey(text);
  if (key !== undefined) return key;
  throw new TorporError(
    'invalid_request',
    'TORPOR_API_KEY is not a key. A key has 32 to 128 hexadecimal digits.',
    {
      hint: 'Make one with: openssl rand -hex 32',
    },
  );
}

async function registerKey({ db, clock }: KeyContext, key: string, name: string): Promise<void> {
  const now = clock.now();
  const row = rowOf(key, {
    org: DEFAULT_ORG,
    subject: null,
    name,
    operator: true,
    readOnly: false,
    createdAt: now,
    expiresAt: null,
  });
  await db.transaction(async (tx) => {
    const valid = await lockServiceKeys(tx, DEFAULT_ORG, now);
    for (const other of valid) {
      if (name === CONFIGURED && other.name === name && other.hash !== row.hash) {
        await markRevoked(tx, other.hash, now);
      }
    }
    await insertKey(tx, row);
    await markValid(tx, row.hash);
  });
}

async function readKeyFile(file: string): Promise<string | undefined> {
  const text = await readFile(file, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw new TorporError('storage_readonly', `The key file ${file} cannot be read.`, { cause: thrown });
  });
  if (text === undefined) return undefined;
  const key = parseKey(text);
  if (key !== undefined) return key;
  throw new TorporError('invalid_request', `The key file ${file} does not hold a key.`, {
    hint: 'Remove the file. The next start makes a new key.',
  });
}
