/** The longer tests of a server with a store. */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { labMissing, startLabS3 } from '@torpor/object-store/testing';
import type { CheckpointId } from '@torpor/sdk';
import { backUpDataDirectory } from '@torpor/server';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { killDuringReplication, StoreWorld, sleeper, until } from './store-world.ts';

const noGvisor = await whyNoGvisor();

let world: StoreWorld;
beforeEach(async () => {
  world = await StoreWorld.open();
});
afterEach(() => world.close(), 120_000);

describe('a server that is killed while it replicates', () => {
  it.each([
    'replication.part-stored:1',
    'replication.part-stored:2',
    'replication.part-stored:3',
    'replication.part-stored:4',
    'replication.marker-stored:1',
    'replication.marker-stored:2',
  ])('at %s finishes after the next start', async (point) => {
    await killDuringReplication(world, point);
  });
});

describe('a server whose store or data key is another one', () => {
  it('refuses to start and changes nothing; a new key before the old one is fine', async () => {
    const { id } = await sleeper(await world.start(), 'kept');
    await world.server?.kill('SIGTERM');
    const before = world.objects();
    const keyFile = world.at('data', 'data-key');
    const key = await readFile(keyFile, 'utf8');

    await mkdir(world.at('elsewhere'));
    const elsewhere = `file://${world.at('elsewhere')}`;
    await expect(world.start({ store: elsewhere })).rejects.toThrow(/are kept in the store file:/);
    await rm(keyFile);
    await expect(world.start()).rejects.toThrow(/data-key is not there/);
    await writeFile(keyFile, `${'ab'.repeat(32)}\n`);
    await expect(world.start()).rejects.toThrow(/need the data key [0-9a-f]{16}/);
    expect([world.objects(), await readdir(world.at('elsewhere'))]).toEqual([before, []]);

    await writeFile(keyFile, `${'ab'.repeat(32)}\n${key}`);
    const { sandboxes } = await world.start();
    const [attached] = (await sandboxes.checkpoints(id)).items;
    await world.loseCheckpoint(attached?.id as CheckpointId);
    await sandboxes.resume(id);
    expect((await sandboxes.exec(id, 'cat note')).stdout).toBe('kept\n');

    const options = { withDatabase: true, progress: () => {}, signal: new AbortController().signal };
    const saved = await backUpDataDirectory(world.at('data'), world.at('backup'), options);
    expect(saved).toMatchObject({ secrets: ['secret', 'data-key'], missingDataKeys: [] });
  });
});

describe.skipIf(noGvisor !== null)('a gVisor sandbox whose checkpoint is replicated', () => {
  it.for([
    ['a directory', false],
    ['S3', true],
  ] as const)(
    'wakes with its memory after its local parts were lost, from %s',
    async ([_, isS3], { skip }) => {
      skip(isS3 && labMissing !== undefined, labMissing);
      const s3 = isS3 ? await startLabS3() : undefined;
      const options = {
        runtime: 'gvisor' as const,
        flags: ['--set', 'runtimes.warmKeepMs=0'],
        ...(s3 === undefined ? {} : { store: `s3://${s3.bucket}/lab`, env: { ...s3.env } }),
      };
      try {
        const { sandboxes } = await world.start(options);
        const { id } = await sandboxes.create({});
        await sandboxes.exec(id, 'echo first > note');
        // A process that nothing but memory can bring back.
        await sandboxes.execInBackground(id, 'sleep 98765');
        const find = 'pgrep -f "sleep 98765" | head -n 1';
        const pid = (await sandboxes.exec(id, find)).stdout;
        const { checkpoint, replicated, replicatedReason } = await sandboxes.pause(id, {
          durability: 'replicated',
        });
        expect([replicated, replicatedReason]).toEqual([true, null]);
        await world.server?.kill('SIGTERM');

        // Everything that a wake needs: the checkpoint, its claim, all layers, all programs.
        await world.lose('sealed', checkpoint.id);
        for (const name of ['references', 'layers', 'programs']) await world.lose(name);
        const again = (await world.start(options)).sandboxes;
        const woken = await again.resume(id);
        // With `--base host` memory depends on /usr of this machine, which other programs may change meanwhile.
        const isHostChanged = woken.skipped?.some(({ why }) =>
          why.includes('system directories of this host'),
        );
        skip(isHostChanged === true, 'the system directories of this host were changed meanwhile');
        expect(woken.skipped ?? []).toEqual([]);
        expect(woken).toMatchObject({ source: { checkpointId: checkpoint.id, kind: 'memory' }, lost: [] });
        expect((await again.exec(id, find)).stdout).toBe(pid);
        expect((await again.exec(id, 'cat note')).stdout).toBe('first\n');
      } finally {
        await world.server?.end();
        world.server = undefined;
        await s3?.stop();
      }
    },
  );
});

describe.skipIf(noGvisor !== null)('a gVisor sandbox on a disk without room', () => {
  it('is evicted after every pause, also with a container that was made in advance, and wakes with its memory', async () => {
    const settings = ['store.cacheBytes=1', 'engine.diskEveryMs=200', 'runtimes.warmKeepMs=0'];
    const flags = settings.flatMap((setting) => ['--set', setting]);
    const start = async () => (await world.start({ runtime: 'gvisor', flags })).sandboxes;
    let sandboxes = await start();
    const { id } = await sandboxes.create({});
    await sandboxes.execInBackground(id, 'sleep 98765');
    const find = 'pgrep -f "sleep 98765" | head -n 1';
    const pid = (await sandboxes.exec(id, find)).stdout;
    for (let round = 0; round < 4; round++) {
      await sandboxes.exec(id, `echo ${round} >> note`);
      const { checkpoint } = await sandboxes.pause(id, { durability: 'replicated' });
      const isEvicted = async () =>
        (await world.eventsOf(id)).some(
          ({ type, data }) =>
            type === 'checkpoint.evicted' &&
            (data as { checkpointId: string }).checkpointId === checkpoint.id,
        );
      await until('it is evicted', isEvicted);
      if (round === 2) {
        await world.server?.kill('SIGKILL');
        sandboxes = await start();
      }
      const woken = await sandboxes.resume(id);
      expect(woken).toMatchObject({ source: { checkpointId: checkpoint.id, kind: 'memory' }, lost: [] });
      expect((await sandboxes.exec(id, find)).stdout).toBe(pid);
    }
    expect((await sandboxes.exec(id, 'cat note')).stdout).toBe('0\n1\n2\n3\n');
    await world.server?.end();
    world.server = undefined;
  });
});
