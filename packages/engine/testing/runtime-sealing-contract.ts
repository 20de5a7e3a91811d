/** The part of the runtime contract that is about checkpoints: making them, starting from them, leaving them be. */
import { describe, expect } from 'vitest';
import type { SealedCheckpoint } from '../src/ports/runtime.ts';
import {
  contentOf,
  failureOf,
  listedInstances,
  newInstance,
  nextOf,
  paused,
  type RuntimeBench,
  sealed,
  sealing,
  snapshotted,
  startFrom,
  templateOf,
  unhurried,
} from './runtime-subject.ts';

export function describeSealing(bench: RuntimeBench): void {
  const { it } = bench;
  describe('capture', () => {
    it('keeps the files for a start elsewhere', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const instance = await bench.started();
      await bench.subject.program.write(instance, 'a', 'one');
      await bench.subject.program.write(instance, 'b', 'two');
      const checkpoint = await paused(bench.subject, instance);
      expect(checkpoint.parts).toEqual({ files: true, memory: false });

      const elsewhere = newInstance();
      const result = await startFrom(bench.subject, elsewhere, checkpoint);

      expect(result).toEqual({ kind: 'files', lost: ['processes'] });
      expect(await bench.subject.program.read(elsewhere, 'a')).toBe('one');
      expect(await bench.subject.program.read(elsewhere, 'b')).toBe('two');
    });

    it('keeps edits and removals over several cycles', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      let instance = await bench.started();
      await bench.subject.program.write(instance, 'kept', 'as it was');
      await bench.subject.program.write(instance, 'removed', 'soon gone');
      for (const text of ['first', 'second', 'third']) {
        await bench.subject.program.write(instance, 'edited', text);
        if (text === 'second') await bench.subject.program.remove?.(instance, 'removed');
        const checkpoint = await paused(bench.subject, instance);
        instance = await bench.started(checkpoint, 'files', nextOf(instance));
        expect(await bench.subject.program.read(instance, 'edited')).toBe(text);
      }
      expect(await bench.subject.program.read(instance, 'kept')).toBe('as it was');
      const removed = bench.subject.program.remove === undefined ? 'soon gone' : undefined;
      expect(await bench.subject.program.read(instance, 'removed')).toBe(removed);
    });

    it('leaves the instance frozen and whole', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const instance = await bench.started();
      await bench.subject.program.write(instance, 'a', 'one');
      await sealed(bench.subject, instance);
      expect(await bench.observed(instance)).toEqual({ is: 'frozen' });
      expect(await bench.subject.program.write(instance, 'a', 'two')).toBe(false);
      await bench.subject.runtime.thaw(instance, null, unhurried);
      expect(await bench.subject.program.read(instance, 'a')).toBe('one');
    });

    it('leaves the instance frozen and whole when it fails or is aborted, and can be asked again', async ({
      skip,
    }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const instance = await bench.started();
      await bench.subject.program.write(instance, 'a', 'one');
      await bench.subject.runtime.freeze(instance, unhurried);
      // What is kept elsewhere needs no place here.
      if (bench.template.path !== null) {
        const nowhere = {
          checkpointId: bench.template.id,
          path: `${bench.template.path}/not/there`,
        } as const;
        await expect(bench.subject.runtime.capture(instance, 'files', nowhere, unhurried)).rejects.toThrow();
      }
      const again = sealing(bench.subject, (staging) =>
        bench.subject.runtime.capture(instance, 'files', staging, AbortSignal.abort()),
      );
      await again.catch(() => {});
      expect(await bench.observed(instance)).toEqual({ is: 'frozen' });
      const checkpoint = await paused(bench.subject, instance);
      const elsewhere = await bench.started(checkpoint);
      expect(await bench.subject.program.read(elsewhere, 'a')).toBe('one');
    });

    it('refuses an instance that is not frozen', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const instance = await bench.started();
      const capture = sealing(bench.subject, (staging) =>
        bench.subject.runtime.capture(instance, 'files', staging, unhurried),
      );
      await expect(capture).rejects.toThrow();
      expect(await bench.observed(instance)).toEqual({ is: 'running' });
    });
  });

  describe('freeze and thaw', () => {
    it('stop the program and let it go on, and may be repeated', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const instance = await bench.started();
      const { runtime, program } = bench.subject;
      await program.write(instance, 'a', 'one');
      for (let times = 0; times < 2; times++) await runtime.freeze(instance, unhurried);
      expect(await bench.observed(instance)).toEqual({ is: 'frozen' });
      expect(await program.write(instance, 'a', 'two')).toBe(false);
      for (let times = 0; times < 2; times++) await runtime.thaw(instance, null, unhurried);
      expect(await bench.observed(instance)).toEqual({ is: 'running' });
      expect(await program.write(instance, 'a', 'three')).toBe(true);
      expect(await program.read(instance, 'a')).toBe('three');
    });

    it('keep a sealed checkpoint as it is while the instance goes on', async ({ skip }) => {
      skip(!bench.can.snapshotWhileRunning, 'it goes on from the checkpoint, not beside it');
      const instance = await bench.started();
      await bench.subject.program.write(instance, 'a', 'one');
      const checkpoint = await sealed(bench.subject, instance, 'files', 'snapshot');
      expect(await bench.observed(instance)).toEqual({ is: 'frozen' });
      const before = await contentOf(bench.subject, checkpoint);
      await bench.subject.runtime.thaw(instance, checkpoint.id, unhurried);

      await bench.subject.program.write(instance, 'a', 'two');
      await bench.subject.program.write(instance, 'more', 'new');

      expect(await contentOf(bench.subject, checkpoint)).toEqual(before);
      const elsewhere = await bench.started(checkpoint);
      expect(await bench.subject.program.read(elsewhere, 'a')).toBe('one');
      expect(await bench.subject.program.read(elsewhere, 'more')).toBeUndefined();
      expect(await bench.subject.program.read(instance, 'a')).toBe('two');
    });

    it('let the checkpoints of one run be sealed one after the other', async ({ skip }) => {
      skip(!bench.can.snapshotWhileRunning, 'it goes on from the checkpoint, not beside it');
      const instance = await bench.started();
      const checkpoints: SealedCheckpoint[] = [];
      for (const text of ['one', 'two', 'three']) {
        await bench.subject.program.write(instance, 'a', text);
        checkpoints.push(await snapshotted(bench.subject, instance));
      }
      const texts: (string | undefined)[] = [];
      for (const checkpoint of checkpoints) {
        texts.push(await bench.subject.program.read(await bench.started(checkpoint), 'a'));
      }
      expect(texts).toEqual(['one', 'two', 'three']);
    });

    it('refuse an instance that is dead or was never there', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const dead = await bench.started();
      await bench.subject.kill(dead);
      for (const instance of [dead, newInstance()]) {
        expect((await failureOf(bench.subject.runtime.freeze(instance, unhurried))).code).toBe('unreachable');
        expect((await failureOf(bench.subject.runtime.thaw(instance, null, unhurried))).code).toBe(
          'unreachable',
        );
      }
    });
  });

  describe('recoverFiles', () => {
    it('keeps the files of an instance that died', async () => {
      const instance = await bench.started();
      await bench.subject.program.write(instance, 'a', 'one');
      await bench.subject.kill(instance);
      const checkpoint = await sealing(bench.subject, (staging) =>
        bench.subject.runtime.recoverFiles(instance, staging, unhurried),
      );
      expect(checkpoint.parts).toEqual({ files: true, memory: false });
      await bench.subject.runtime.destroy(instance, unhurried);
      const elsewhere = await bench.started(checkpoint);
      expect(await bench.subject.program.read(elsewhere, 'a')).toBe('one');
    });

    it('says checkpoint_missing when nothing is left', async () => {
      const wiped = await bench.started();
      await bench.subject.wipe(wiped);
      for (const instance of [wiped, newInstance()]) {
        const recovering = sealing(bench.subject, (staging) =>
          bench.subject.runtime.recoverFiles(instance, staging, unhurried),
        );
        expect((await failureOf(recovering)).code).toBe('checkpoint_missing');
      }
    });
  });

  describe('a checkpoint', () => {
    it('starts two instances that then go their own ways', async ({ skip }) => {
      skip(!bench.can.fork, 'it cannot fork');
      const origin = await bench.started();
      await bench.subject.program.write(origin, 'a', 'shared');
      const take = bench.can.replayable ? paused : snapshotted;
      const checkpoint = await take(bench.subject, origin);
      const [left, right] = [await bench.started(checkpoint), await bench.started(checkpoint)];
      await bench.subject.program.write(left, 'a', 'left');
      await bench.subject.program.write(right, 'b', 'right');
      expect(await bench.subject.program.read(left, 'a')).toBe('left');
      expect(await bench.subject.program.read(left, 'b')).toBeUndefined();
      expect(await bench.subject.program.read(right, 'a')).toBe('shared');
    });

    it('passes inspect and verify as it was sealed', async () => {
      await bench.subject.runtime.inspect(bench.template, unhurried);
      await bench.subject.runtime.verify(bench.template, unhurried);
    });

    it('is refused by inspect and by start when it is missing or damaged', async () => {
      for (const how of bench.subject.damages ?? (['missing', 'corrupt'] as const)) {
        const checkpoint = await vulnerable(bench);
        await bench.subject.damage(checkpoint, how);
        const code = how === 'missing' ? 'checkpoint_missing' : 'checkpoint_corrupt';
        const inspection = bench.subject.runtime.inspect(checkpoint, unhurried);
        expect(await failureOf(inspection)).toMatchObject({ code, checkpointId: checkpoint.id });
        const instance = newInstance();
        expect(await failureOf(startFrom(bench.subject, instance, checkpoint))).toMatchObject({ code });
        await bench.subject.runtime.destroy(instance, unhurried);
      }
      expect(await listedInstances(bench.subject.runtime)).toEqual([]);
    });

    it('whose memory alone is missing or damaged still gives its files back (R91, R93)', async ({ skip }) => {
      const { runtime, store, program, memoryDamages } = bench.subject;
      skip(bench.can.pause !== 'memory', 'it does not keep memory');
      skip(memoryDamages === undefined, 'its memory cannot be told from the rest');
      const { memoryEntries: names } = runtime;
      for (const [what, damage] of Object.entries(memoryDamages ?? {})) {
        const instance = await bench.started();
        await program.write(instance, 'a', what);
        const checkpoint = await paused(bench.subject, instance, 'memory');
        await damage(checkpoint);
        const memory = store.inspect(checkpoint.id, unhurried, { how: 'only', names });
        expect((await failureOf(memory)).code, what).toMatch(/^checkpoint_(missing|corrupt)$/);
        // Neither the store nor the runtime has anything to say against the files.
        await store.inspect(checkpoint.id, unhurried, { how: 'except', names });
        await store.verify(checkpoint.id, unhurried, { how: 'except', names });
        await runtime.inspect(checkpoint, unhurried);
        await runtime.verify(checkpoint, unhurried);
        const restarted = newInstance();
        const result = await startFrom(bench.subject, restarted, checkpoint, 'files');
        expect(result, what).toEqual({ kind: 'files', lost: ['processes'] });
        expect(await program.read(restarted, 'a')).toBe(what);
        await runtime.destroy(restarted, unhurried);
      }
    });

    it('that is kept elsewhere is not there any more once it is discarded', async ({ skip }) => {
      skip(bench.template.path !== null, 'it is kept here');
      const { runtime, program } = bench.subject;
      const instance = await bench.started();
      await program.write(instance, 'a', 'one');
      if (bench.can.snapshotWhileRunning) {
        const beside = await snapshotted(bench.subject, instance);
        for (let times = 0; times < 2; times++) await runtime.discard(beside, unhurried);
        expect((await failureOf(runtime.inspect(beside, unhurried))).code).toBe('checkpoint_missing');
        expect((await failureOf(startFrom(bench.subject, newInstance(), beside))).code).toBe(
          'checkpoint_missing',
        );
        expect(await program.read(instance, 'a')).toBe('one');
      }
      const checkpoint = await paused(bench.subject, instance);
      for (let times = 0; times < 2; times++) await runtime.discard(checkpoint, unhurried);
      expect((await failureOf(runtime.inspect(checkpoint, unhurried))).code).toBe('checkpoint_missing');
      expect(await listedInstances(runtime)).toEqual([]);
    });

    it('can be discarded more than once', async () => {
      for (let times = 0; times < 2; times++) await bench.subject.runtime.discard(bench.template, unhurried);
    });
  });

  describe('capabilities', () => {
    it('without a pause: freeze and capture are refused and the instance runs on', async ({ skip }) => {
      skip(bench.can.pause !== 'none', 'it can pause');
      const instance = await bench.started();
      const freeze = bench.subject.runtime.freeze(instance, unhurried);
      expect((await failureOf(freeze)).code).toBe('capability_unsupported');
      const capture = sealing(bench.subject, (staging) =>
        bench.subject.runtime.capture(instance, 'files', staging, unhurried),
      );
      expect((await failureOf(capture)).code).toBe('capability_unsupported');
      expect(await bench.observed(instance)).toEqual({ is: 'running' });
    });

    it('without memory: capturing it is refused and the instance stays frozen', async ({ skip }) => {
      skip(bench.can.pause !== 'files', 'it keeps memory, or nothing');
      const instance = await bench.started();
      await bench.subject.runtime.freeze(instance, unhurried);
      const capture = sealing(bench.subject, (staging) =>
        bench.subject.runtime.capture(instance, 'memory', staging, unhurried),
      );
      expect((await failureOf(capture)).code).toBe('capability_unsupported');
      expect(await bench.observed(instance)).toEqual({ is: 'frozen' });
    });

    it('with memory: the processes come back as they were, or are said to be lost', async ({ skip }) => {
      skip(bench.can.pause !== 'memory', 'it does not keep memory');
      const instance = await bench.started();
      await bench.subject.program.write(instance, 'a', 'one');
      const counted = await bench.subject.program.counter?.(instance);
      const checkpoint = await paused(bench.subject, instance, 'memory');
      expect(checkpoint.parts).toEqual({ files: true, memory: true });

      const awake = newInstance();
      expect(await startFrom(bench.subject, awake, checkpoint, 'memory')).toEqual({
        kind: 'memory',
        lost: [],
      });
      expect(await bench.subject.program.counter?.(awake)).toBe(counted);
      const restarted = newInstance();
      const again = bench.can.replayable ? checkpoint : await paused(bench.subject, awake, 'memory');
      const result = await startFrom(bench.subject, restarted, again, 'files');
      expect(result).toEqual({ kind: 'files', lost: ['processes'] });
      expect(await bench.subject.program.read(restarted, 'a')).toBe('one');
    });
  });
}

/** One to be damaged. A template that is kept elsewhere is its keeper's, and out of reach. */
async function vulnerable(bench: RuntimeBench): Promise<SealedCheckpoint> {
  if (bench.template.path !== null) return templateOf(bench.subject);
  return paused(bench.subject, await bench.started());
}
