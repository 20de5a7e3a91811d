import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { labMissing, startLabS3 } from '../testing/lab.ts';
import { objectStoreContract } from '../testing/object-store-contract.ts';
import { openObjectStore } from './open-object-store.ts';

const LIMITS = { callMs: 10_000, stallMs: 10_000, minBytesPerSecond: 1_000 };

objectStoreContract('a directory', async () => {
  const root = await mkdtemp(join(tmpdir(), 'torpor-objects-'));
  return {
    store: await openObjectStore(`file://${root}`, {}, LIMITS),
    elsewhere: await openObjectStore(`file://${root}/not-there`, {}, LIMITS),
    close: () => rm(root, { recursive: true }),
  };
});

objectStoreContract(
  'S3',
  async () => {
    const s3 = await startLabS3();
    return {
      store: await openObjectStore(`s3://${s3.bucket}/some/prefix`, s3.env, LIMITS),
      elsewhere: await openObjectStore('s3://no-such-bucket/some/prefix', s3.env, LIMITS),
      close: () => s3.stop(),
    };
  },
  labMissing,
);
