/**
 * What every checkpoint store must do with programs: they are whole or absent, kept while a checkpoint claims them or a runtime
 * uses them, and removed afterwards. The tests of an implementation call `programRetentionContract` once.
 */
import * as files from 'node:fs/promises';
import { join } from 'node:path';
import { failureOf } from '@torpor/engine/testing';
import { sha256Of } from '@torpor/host';
import { digestOfTools, type ProgramId } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LayeredCheckpointStore } from '../src/directory-store.ts';
import { type RetentionSubject, sealNeeding } from './retention-subject.ts';
import { newCheckpointId } from './small-checkpoint.ts';

export function programRetentionContract(name: string, create: () => Promise<RetentionSubject>): void {
  describe(`program retention contract: ${name}`, () => {
    let subject: RetentionSubject;
    let store: LayeredCheckpointStore;
    beforeEach(async () => {
      subject = await create();
      store = await subject.open();
    });
    afterEach(() => subject.close());

    const tools = (text: string): ProgramId => ({
      kind: 'tools',
      digest: digestOfTools([
        ['manifest.json', sha256Of('{}')],
        ['lib/node', sha256Of(text)],
      ]),
    });
    const runsc = (text: string): ProgramId => ({ kind: 'runsc', digest: sha256Of(text) });

    const writeTools = (text: string) => async (directory: string) => {
      await files.mkdir(join(directory, 'lib'));
      await files.writeFile(join(directory, 'lib', 'node'), text);
      await files.writeFile(join(directory, 'manifest.json'), '{}');
    };
    const writeRunsc = (text: string) => async (directory: string) => {
      await files.writeFile(join(directory, 'runsc'), text);
      await files.writeFile(join(directory, 'version'), 'release-20260701.0');
    };

    async function addTools(text: string): Promise<ProgramId> {
      await store.layerStore.programs.add(tools(text), writeTools(text));
      return tools(text);
    }
    async function addRunsc(text: string): Promise<ProgramId> {
      await store.layerStore.programs.add(runsc(text), writeRunsc(text));
      return runsc(text);
    }

    const stored = async () => [
      ...(await store.layerStore.programs.list('runsc')),
      ...(await store.layerStore.programs.list('tools')),
    ];
    const sweep = async () => [
      ...(await store.layerStore.programs.sweep('runsc', new Set())),
      ...(await store.layerStore.programs.sweep('tools', new Set())),
    ];

    describe('adding a program', () => {
      it('makes it whole, for the next server too', async () => {
        const programs = [await addRunsc('a'), await addTools('a')];
        store = await subject.open();
        expect(await stored()).toEqual(programs.map(({ digest }) => digest));
        for (const program of programs) await store.layerStore.programs.verify(program);
        const at = store.layerStore.programs.path(tools('a'));
        expect(await files.readFile(join(at, 'lib', 'node'), 'utf8')).toBe('a');
      });

      it('writes nothing when the program is there', async () => {
        await addTools('a');
        let written = 0;
        await store.layerStore.programs.add(tools('a'), async () => {
          written++;
        });
        expect(written).toBe(0);
      });

      it('leaves nothing when it fails, or when the content has another digest', async () => {
        const fails = store.layerStore.programs.add(runsc('a'), async () => {
          throw new Error('stopped');
        });
        await expect(fails).rejects.toThrow('stopped');
        const other = store.layerStore.programs.add(runsc('a'), writeRunsc('b'));
        expect((await failureOf(other)).code).toBe('conflict');
        expect(await stored()).toEqual([]);
      });

      it('refuses text that is not a digest', async () => {
        for (const digest of ['', '..', 'A'.repeat(64)])
          expect(() => store.layerStore.programs.path({ kind: 'tools', digest })).toThrow('not the digest');
      });
    });

    describe('verifying a program', () => {
      it('finds a missing program and a changed file', async () => {
        const { programs } = store.layerStore;
        for (const [program, file] of [
          [await addRunsc('a'), 'runsc'],
          [await addTools('a'), 'lib/node'],
        ] as const) {
          await programs.verify(program);
          await subject.damage.replaceProgramFile(program, file, 'b');
          expect((await failureOf(programs.verify(program))).code).toBe('checkpoint_corrupt');
          await subject.damage.replaceProgramFile(program, file);
          expect((await failureOf(programs.verify(program))).code).toBe('checkpoint_missing');
        }
      });
    });

    describe('a sweep', () => {
      it('removes programs that no checkpoint claims and nothing uses, and nothing else', async () => {
        const claimed = [await addRunsc('claimed'), await addTools('claimed')];
        const [used, unused] = [await addTools('used'), await addTools('unused')];
        await sealNeeding(store, { programs: claimed });
        const { programs } = store.layerStore;
        expect(await programs.sweep('tools', new Set([used.digest]))).toEqual([unused.digest]);
        expect(await programs.sweep('runsc', new Set())).toEqual([]);
        expect(await programs.list('tools')).toEqual([claimed[1]?.digest, used.digest].sort());
        for (const program of [...claimed, used]) await programs.verify(program);
      });

      it('keeps a program that an unsealed checkpoint claims', async () => {
        const program = await addTools('a');
        await store.layerStore.claim(newCheckpointId(), { layers: [], runsc: null, tools: program.digest });
        store = await subject.open();
        await sweep();
        expect(await stored()).toEqual([program.digest]);
      });

      it('removes the programs of a checkpoint that was removed, unless another one claims them', async () => {
        const [own, shared] = [await addRunsc('own'), await addTools('shared')];
        const first = await sealNeeding(store, { programs: [own, shared] });
        await sealNeeding(store, { programs: [shared] });
        await store.remove(first);
        await sweep();
        expect(await stored()).toEqual([shared.digest]);
      });

      it('keeps the programs that a manifest names when the claim does not name them', async () => {
        const programs = [await addRunsc('a'), await addTools('a')];
        await sealNeeding(store, { programs, claimsPrograms: false });
        await sweep();
        expect(await stored()).toEqual(programs.map(({ digest }) => digest));
      });

      it('keeps the programs of a sealed checkpoint without a claim, as after a restore by hand', async () => {
        const programs = [await addRunsc('a'), await addTools('a')];
        const id = await sealNeeding(store, { programs });
        await subject.damage.deleteClaim(id);
        store = await subject.open();
        await sweep();
        expect(await stored()).toEqual(programs.map(({ digest }) => digest));
      });

      it('needs no program for a checkpoint without memory whose claim names none', async () => {
        const program = await addTools('a');
        await sealNeeding(store, { programs: [program], claimsPrograms: false, memory: false });
        expect(await sweep()).toEqual([program.digest]);
      });

      it.each([
        ['a claim', (id: CheckpointId) => subject.damage.replaceClaim(id, '{')],
        [
          'the manifest of a checkpoint without a claim',
          async (id: CheckpointId) => {
            await subject.damage.deleteClaim(id);
            await subject.damage.deleteManifest(id);
          },
        ],
      ])('keeps every program while %s cannot be read', async (_, damage) => {
        const programs = [await addRunsc('a'), await addTools('a')];
        const id = await sealNeeding(store, {});
        await damage(id);
        store = await subject.open();
        expect(await sweep()).toEqual([]);
        expect(await stored()).toEqual(programs.map(({ digest }) => digest));
        // Once the checkpoint is gone, nothing refers to the programs.
        await store.remove(id);
        expect(await sweep()).toHaveLength(2);
      });
    });
  });
}
