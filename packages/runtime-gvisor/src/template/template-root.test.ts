import { execFile } from 'node:child_process';
import { appendFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { SealedCheckpoint } from '@torpor/engine';
import { builtInSpec, nextOf, paused, sealing, startFrom, unhurried } from '@torpor/engine/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { tinyRoot } from '../../testing/tiny-root.ts';
import type { MachineBase } from '../base/build-base.mjs';
import { treeDigest } from '../base/tree-digest.mjs';
import { needsOf } from '../checkpoint-needs.ts';

const run = promisify(execFile);
const why = await whyNoGvisor();

describe.skipIf(why !== null)(
  `the template base with a root of its own${why === null ? '' : ` (${why})`}`,
  { timeout: 120_000 },
  () => {
    let world: GvisorWorld;
    let directory: string;
    let first: MachineBase;
    let second: MachineBase;
    let newest: MachineBase | undefined;

    beforeAll(async () => {
      directory = await mkdtemp(join(tmpdir(), 'torpor-roots-'));
      first = await rootWith('first');
      second = await rootWith('second');
      newest = first;
      world = await makeGvisorWorld({ hostResourcePoolSize: 0, ownBase: () => newest });
    }, 120_000);
    afterEach(async () => {
      newest = first;
      await world?.dispose();
    }, 60_000);
    afterAll(async () => {
      await world?.close();
      await rm(directory, { recursive: true });
    }, 60_000);

    /** A small root, which takes the place of the one that is made from Debian's packages. */
    async function rootWith(word: string): Promise<MachineBase> {
      const root = join(directory, word);
      await mkdir(root);
      const archive = join(directory, `${word}.tar`);
      await writeFile(archive, await tinyRoot({ '/etc/word': word }));
      await run('tar', ['--extract', '--file', archive, '--directory', root]);
      const about = { recipe: 1, builtAt: new Date(0).toISOString(), bytes: 0 };
      return { ...about, root, digest: await treeDigest(root) };
    }
    const prepared = (previous: SealedCheckpoint | null = null) =>
      sealing(world, (staging) =>
        world.runtime.prepareTemplate(builtInSpec('base', previous), staging, unhurried),
      );
    const wordIn = async (template: SealedCheckpoint) => {
      const instance = await world.started({}, template);
      return (await world.run(instance, 'read word < /etc/word; echo $word')).output.trim();
    };
    const layerCount = async () => (await readdir(join(world.dataDir, 'checkpoints/layers'))).length;
    const bottomOf = (template: SealedCheckpoint) => needsOf(template).layers.at(-1);

    it('names the digest of its content, and depends on nothing of the host', async () => {
      const template = await prepared();
      expect(needsOf(template)).toMatchObject({ root: 'own', rootDigest: first.digest, system: null });
      expect(await wordIn(template)).toBe('first');
    });

    it('is in one layer, which all its sandboxes share', async () => {
      const template = await prepared();
      const instances = [await world.started({}, template), await world.started({}, template)];
      const bottoms = instances.map((instance) => world.recordOf(instance).lower.at(-1)?.id);
      expect(bottoms).toEqual([bottomOf(template)?.id, bottomOf(template)?.id]);
    });

    it('is prepared again over the same layer while its content is the newest', async () => {
      const template = await prepared();
      expect(await world.runtime.isOutdated?.(template)).toBe(false);
      const again = await prepared(template);
      expect(bottomOf(again)?.id).toBe(bottomOf(template)?.id);
      expect(needsOf(again).rootDigest).toBe(first.digest);
      // What is made on this host may be gone: the layer in the store is enough.
      newest = undefined;
      expect(await world.runtime.isOutdated?.(template)).toBe(false);
      expect(bottomOf(await prepared(template))?.id).toBe(bottomOf(template)?.id);
    });

    it('takes newer content when there is some, and sleepers of the old content still wake', async () => {
      const template = await prepared();
      const instance = await world.started({}, template);
      await world.program.write(instance, '/tmp/kept', 'yes');
      const asleep = await paused(world, instance, 'memory');
      newest = second;
      expect(await world.runtime.isOutdated?.(template)).toBe(true);
      const next = await prepared(template);
      expect(await wordIn(next)).toBe('second');
      const woken = nextOf(instance);
      expect(await startFrom(world, woken, asleep, 'memory')).toEqual({ mode: 'memory', lost: [] });
      expect((await world.run(woken, 'read word < /etc/word; echo $word')).output).toBe('first\n');
    });

    it('does not use content that has changed since it was made', async () => {
      newest = await rootWith('damaged');
      await appendFile(join(newest.root, 'etc/word'), '!');
      const before = await layerCount();
      const template = await prepared();
      expect(needsOf(template)).toMatchObject({ root: 'base', rootDigest: null });
      // The bottom, the upper layer and the pages of the memory.
      expect(await layerCount()).toBe(before + 3);
    });
  },
);
