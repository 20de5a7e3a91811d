/**
 * The server's secret of several nodes. All of them must derive the same tokens, sessions and webhook signatures, and read the
 * same stored secrets, so it is in the database: encrypted with a key that is derived from the cluster secret, which is not
 * there. A cluster secret that was replaced does not change it.
 */
import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock, Database, Transaction } from '@torpor/engine';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

export interface SharedSecretContext {
  readonly db: Database;
  readonly clock: Clock;
  readonly randomBytes: (n: number) => Uint8Array;
  /** The first encrypts, all are tried. */
  readonly clusterSecrets: readonly Uint8Array[];
  readonly dataDir: string;
  readonly dataDirectoryId: string;
}

const NAME = 'server';
const BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export async function ensureSharedSecret(ctx: SharedSecretContext): Promise<Uint8Array> {
  const made = await firstSecret(ctx);
  return ctx.db.transaction(async (tx) => {
    const { clusterSecrets, clock } = ctx;
    const [first] = clusterSecrets;
    if (first === undefined) throw wrongClusterSecret();
    if (made !== undefined) {
      await tx.query(
        'INSERT INTO shared_secrets (name, encrypted, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING',
        [NAME, encrypt(first, made, ctx.randomBytes), clock.now()],
      );
    }
    const stored = await readForUpdate(tx);
    if (stored === undefined) throw wrongClusterSecret();
    const found = clusterSecrets.findIndex((secret) => decrypt(secret, stored) !== undefined);
    const secret = decrypt(clusterSecrets[found] ?? first, stored);
    if (secret === undefined) throw wrongClusterSecret();
    if (found > 0) {
      await tx.query('UPDATE shared_secrets SET encrypted = $2 WHERE name = $1', [
        NAME,
        encrypt(first, secret, ctx.randomBytes),
      ]);
    }
    return secret;
  });
}

/**
 * The secret for a database that has none yet. A server that was alone brings its own, or its tokens and stored secrets would
 * become invalid. Undefined when another node must bring it.
 */
async function firstSecret(ctx: SharedSecretContext): Promise<Uint8Array | undefined> {
  const { db, dataDir, dataDirectoryId, randomBytes } = ctx;
  const [known] = await db.query('SELECT name FROM shared_secrets WHERE name = $1', [NAME]);
  if (known !== undefined) return undefined;
  const [home] = await db.query<{ id: string }>('SELECT id FROM home WHERE one = 1');
  if (home !== undefined && home.id !== dataDirectoryId) {
    throw new TorporError(
      'in_use',
      `This database belongs to a server without --node, with the data directory ${home.id}.`,
      { hint: 'Start that server with --node first. Its sandboxes are kept. Then start this one.' },
    );
  }
  const own = await readFile(join(dataDir, 'secret'), 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
  const bytes = own === undefined ? randomBytes(BYTES) : Buffer.from(own.trim(), 'hex');
  if (bytes.length === BYTES) return bytes;
  throw new TorporError(
    'invalid_request',
    `The file ${join(dataDir, 'secret')} does not hold the server's secret.`,
  );
}

async function readForUpdate(tx: Transaction): Promise<string | undefined> {
  // Locked, because two nodes may encrypt it anew at the same time.
  const [row] = await tx.query<{ encrypted: string }>(
    'SELECT encrypted FROM shared_secrets WHERE name = $1 {FOR UPDATE}',
    [NAME],
  );
  return row?.encrypted;
}

function keyOf(clusterSecret: Uint8Array): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', clusterSecret, '', 'torpor shared secrets v1', 32));
}

function encrypt(
  clusterSecret: Uint8Array,
  secret: Uint8Array,
  randomBytes: (n: number) => Uint8Array,
): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv('aes-256-gcm', keyOf(clusterSecret), nonce).setAAD(Buffer.from(NAME));
  const encrypted = Buffer.concat([cipher.update(secret), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), encrypted]).toString('base64');
}

/** Undefined when it was encrypted with another cluster secret. */
function decrypt(clusterSecret: Uint8Array, text: string): Uint8Array | undefined {
  const bytes = Buffer.from(text, 'base64');
  try {
    const decipher = createDecipheriv('aes-256-gcm', keyOf(clusterSecret), bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(Buffer.from(NAME)).setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  } catch {
    return undefined;
  }
}

function wrongClusterSecret(): TorporError {
  return new TorporError(
    'unauthenticated',
    'TORPOR_CLUSTER_SECRET is not the secret of the nodes that use this database.',
    { hint: 'Give this node the secret that the other nodes have. Nothing was changed.' },
  );
}
