/** A server with a store outside its machine: a directory always, S3 when the lab is there. */
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rmdir } from 'node:fs/promises';
import { environmentFor, FaultProxy, type LabS3, labMissing, startLabS3 } from '@torpor/object-store/testing';
import type { Torpor } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StoreWorld, sleeper, until } from './store-world.ts';

describe('a server with a store in a directory', { timeout: 60_000 }, () => {
  let world: StoreWorld;
  let torpor: Torpor;
  beforeAll(async () => {
    world = await StoreWorld.open();
    torpor = await world.start();
  }, 60_000);
  afterAll(() => world.close(), 60_000);

  it('answers a pause when the checkpoint is in the store, and starts from there when the local one is lost', async () => {
    const { id, reply, checkpoint } = await sleeper(torpor, 'correct-horse');
    expect(reply).toMatchObject({
      replicated: true,
      replicatedReason: null,
      checkpoint: { replicated: true },
    });
    expect(world.objects('marker/').filter((key) => key.includes(checkpoint))).toHaveLength(1);
    for (const key of world.objects())
      expect((await readFile(world.at('objects', key))).includes('correct-horse')).toBe(false);

    await world.loseCheckpoint(checkpoint);
    const woken = await torpor.sandboxes.resume(id);
    expect(woken).toMatchObject({ source: { checkpointId: checkpoint, kind: 'files' } });
    expect((await torpor.sandboxes.exec(id, 'cat note')).stdout).toBe('correct-horse\n');
    const types = (await world.eventsOf(id)).map(({ type }) => type);
    expect(types).toContain('checkpoint.replicated');
    expect(types).toContain('checkpoint.fetched');
    expect(types).not.toContain('checkpoint.health');
    expect(await torpor.checkpoints.get(checkpoint)).toMatchObject({ health: 'ok', replicated: true });
  });

  it('deletes the objects of a deleted checkpoint, and keeps those of others', async () => {
    const [gone, kept] = [await sleeper(torpor, 'gone'), await sleeper(torpor, 'kept')];
    await torpor.sandboxes.kill(gone.id);
    await torpor.checkpoints.delete(gone.checkpoint);
    await until('its objects are deleted', () =>
      world.objects().every((key) => !key.includes(gone.checkpoint)),
    );
    await world.loseCheckpoint(kept.checkpoint);
    await torpor.sandboxes.resume(kept.id);
    expect((await torpor.sandboxes.exec(kept.id, 'cat note')).stdout).toBe('kept\n');
  });

  it('starts nothing when the local checkpoint is lost and the store is away, and starts when it is back (R92)', async () => {
    const { id, checkpoint } = await sleeper(torpor, 'kept');
    await world.loseCheckpoint(checkpoint);
    await rename(world.at('objects'), world.at('away'));
    await expect(torpor.sandboxes.resume(id)).rejects.toMatchObject({
      code: 'checkpoint_unreadable',
      retryable: true,
      details: { fault: 'no_bucket' },
    });
    expect(await torpor.sandboxes.get(id)).toMatchObject({ state: 'paused' });
    await rename(world.at('away'), world.at('objects'));
    await torpor.sandboxes.resume(id);
    expect((await torpor.sandboxes.exec(id, 'cat note')).stdout).toBe('kept\n');
  });

  it('evicts what sleeps from a full disk, and wakes it from the store', async () => {
    await world.server?.kill('SIGTERM');
    const flags = ['--set', 'store.cacheBytes=1', '--set', 'engine.diskEveryMs=50'];
    torpor = await world.start({ flags });
    const { id, checkpoint } = await sleeper(torpor, 'kept');
    const evicted = async () => (await world.eventsOf(id)).find(({ type }) => type === 'checkpoint.evicted');
    await until('it is evicted', async () => (await evicted()) !== undefined);
    expect((await evicted())?.data).toMatchObject({ checkpointId: checkpoint, node: 'local' });
    expect(existsSync(world.at('data', 'checkpoints', 'sealed', checkpoint))).toBe(false);
    expect(await torpor.checkpoints.get(checkpoint)).toMatchObject({ health: 'ok', replicated: true });
    expect((await torpor.disk()).cache).toMatchObject({ bytes: expect.any(Number), limitBytes: 1 });
    await torpor.sandboxes.resume(id);
    expect((await torpor.sandboxes.exec(id, 'cat note')).stdout).toBe('kept\n');
  });

  it('does not start with another store at the same address, and writes nothing into it', async () => {
    await world.server?.kill('SIGTERM');
    await rename(world.at('objects'), world.at('right'));
    await mkdir(world.at('objects'));
    await expect(world.start()).rejects.toThrow(/is not the one that has the checkpoints of this database/);
    expect(world.objects()).toEqual([]);
    await rmdir(world.at('objects'));
    await rename(world.at('right'), world.at('objects'));
    torpor = await world.start();
  });
});

const skipped = labMissing === undefined ? '' : ` (skipped: ${labMissing})`;
describe.skipIf(labMissing !== undefined)(
  `a server with a store in S3${skipped}`,
  { timeout: 60_000 },
  () => {
    let s3: LabS3;
    let proxy: FaultProxy;
    let world: StoreWorld;
    beforeAll(async () => {
      s3 = await startLabS3();
      proxy = await FaultProxy.open(s3.port);
      world = await StoreWorld.open();
    }, 60_000);
    afterAll(async () => {
      await world.close();
      await proxy.close();
      await s3.stop();
    }, 60_000);

    it('pauses also when the store refuses, says why it is not replicated, and replicates when it may', async () => {
      const on = { store: `s3://${s3.bucket}/lab`, env: environmentFor(proxy.endpoint) };
      proxy.fault = 'forbid';
      await expect(world.start(on)).rejects.toThrow(/refused the request: the credentials/);
      proxy.fault = 'none';
      const torpor = await world.start(on);
      proxy.fault = 'forbid';
      const { id, reply, checkpoint } = await sleeper(torpor, 'kept');
      expect(reply).toMatchObject({ replicated: false, sandbox: { state: 'paused' } });
      expect(reply.replicatedReason).toContain('refused the request');
      const failed = (await world.eventsOf(id)).find(({ type }) => type === 'checkpoint.replication_failed');
      expect(failed?.data).toMatchObject({
        checkpointId: checkpoint,
        code: 'forbidden',
        fault: 'refusing',
        bucket: s3.bucket,
        key: expect.stringContaining('lab/'),
      });

      proxy.fault = 'none';
      await until(
        'it is replicated',
        async () => (await torpor.checkpoints.get(checkpoint)).replicated === true,
      );
      await world.loseCheckpoint(checkpoint);
      proxy.fault = 'change';
      proxy.methods = ['GET'];
      await expect(torpor.sandboxes.resume(id, { fallback: [] })).rejects.toMatchObject({
        code: 'checkpoint_missing',
      });
      proxy.fault = 'none';
      await torpor.sandboxes.resume(id);
      expect((await torpor.sandboxes.exec(id, 'cat note')).stdout).toBe('kept\n');
    });

    it('does not start when the bucket of the same name is at another service', async () => {
      await world.server?.kill('SIGTERM');
      const other = await startLabS3();
      try {
        const on = { store: `s3://${s3.bucket}/lab`, env: environmentFor(other.endpoint) };
        await expect(world.start(on)).rejects.toThrow(/is not the one that has the checkpoints/);
        expect(await readdir(other.files, { recursive: true })).toEqual([]);
      } finally {
        await other.stop();
      }
      await world.start({ store: `s3://${s3.bucket}/lab`, env: environmentFor(proxy.endpoint) });
    });
  },
);
