/** The secret that all nodes share: made once, opened by each cluster secret that is accepted, and never changed. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Database, systemClock } from '@torpor/engine';
import { type FreshDatabase, freshDatabase } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ensureSharedSecret } from '../../packages/server/src/cluster/shared-secret.ts';

const [OLD, NEW, OTHER] = ['old', 'new', 'other'].map((text) => Buffer.from(text.repeat(16)));

describe('the secret that nodes share', () => {
  let database: FreshDatabase;
  let db: Database;
  let directory: string;
  beforeEach(async () => {
    database = await freshDatabase('sqlite');
    db = database.db;
    directory = await mkdtemp(join(tmpdir(), 'torpor-secret-'));
  });
  afterEach(async () => {
    await database.dispose();
    await rm(directory, { recursive: true });
  });

  const ensure = (clusterSecrets: readonly (Buffer | undefined)[], dataDirectoryId = 'dir_a') =>
    ensureSharedSecret({
      db,
      clock: systemClock,
      randomBytes,
      clusterSecrets: clusterSecrets.filter((one) => one !== undefined),
      dataDir: directory,
      dataDirectoryId,
    });
  const stored = async () =>
    (await db.query<{ encrypted: string }>('SELECT encrypted FROM shared_secrets'))[0];

  it('is the same for every node, and is not in the database in the clear', async () => {
    const first = await ensure([OLD]);
    expect(first).toHaveLength(32);
    expect(await ensure([OLD], 'dir_b')).toEqual(first);
    const { encrypted = '' } = (await stored()) ?? {};
    expect(Buffer.from(encrypted, 'base64').includes(Buffer.from(first))).toBe(false);
  });

  it('is the secret of the server that was alone before', async () => {
    const own = randomBytes(32);
    await writeFile(join(directory, 'secret'), `${own.toString('hex')}\n`);
    expect(Buffer.from(await ensure([OLD]))).toEqual(own);
  });

  it('survives the replacement of the cluster secret', async () => {
    const first = await ensure([OLD]);
    expect(await ensure([OLD, NEW])).toEqual(first);
    expect(await ensure([NEW, OLD])).toEqual(first);
    expect(await ensure([NEW])).toEqual(first);
    await expect(ensure([OLD])).rejects.toMatchObject({ code: 'unauthenticated' });
  });

  it('stays as it is when a node has another cluster secret', async () => {
    await ensure([OLD]);
    const before = await stored();
    await expect(ensure([OTHER])).rejects.toMatchObject({ code: 'unauthenticated' });
    expect(await stored()).toEqual(before);
  });

  it('is not made by a new node on the database of another server', async () => {
    await db.transaction((tx) => tx.query(`INSERT INTO home (one, id) VALUES (1, 'dir_of_another')`));
    await expect(ensure([OLD])).rejects.toMatchObject({ code: 'in_use' });
    expect(await stored()).toBeUndefined();
  });
});
