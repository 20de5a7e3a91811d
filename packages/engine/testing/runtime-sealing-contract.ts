/** The part of the runtime contract that is about checkpoints: sealing them, starting from them, not changing them. */
import { describe, expect } from 'vitest';
import type { SealedCheckpoint } from '../src/ports/runtime.ts';
import {
  type ContractFixture,
  contentOf,
  failureOf,
  listedInstances,
  newInstance,
  nextOf,
  paused,
  sealed,
  sealing,
  snapshotted,
  startFrom,
  templateOf,
  unhurried,
} from './runtime-subject.ts';

export function describeSealing(fixture: ContractFixture): void {
  const { it } = fixture;
  describe('capture', () => {
    it('keeps the files for a start elsewhere', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const instance = await fixture.started();
      await fixture.subject.program.write(instance, 'a', 'one');
      await fixture.subject.program.write(instance, 'b', 'two');
      const checkpoint = await paused(fixture.subject, instance);
      expect(checkpoint.parts).toEqual({ files: true, memory: false });

      const elsewhere = newInstance();
      const result = await startFrom(fixture.subject, elsewhere, checkpoint);

      expect(result).toEqual({ mode: 'files', lost: ['processes'] });
      expect(await fixture.subject.program.read(elsewhere, 'a')).toBe('one');
      expect(await fixture.subject.program.read(elsewhere, 'b')).toBe('two');
    });

    it('keeps edits and removals over several pauses', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      let instance = await fixture.started();
      await fixture.subject.program.write(instance, 'kept', 'as it was');
      await fixture.subject.program.write(instance, 'removed', 'soon gone');
      for (const text of ['first', 'second', 'third']) {
        await fixture.subject.program.write(instance, 'edited', text);
        if (text === 'second') await fixture.subject.program.remove?.(instance, 'removed');
        const checkpoint = await paused(fixture.subject, instance);
        instance = await fixture.started(checkpoint, 'files', nextOf(instance));
        expect(await fixture.subject.program.read(instance, 'edited')).toBe(text);
      }
      expect(await fixture.subject.program.read(instance, 'kept')).toBe('as it was');
      const removed = fixture.subject.program.remove === undefined ? 'soon gone' : undefined;
      expect(await fixture.subject.program.read(instance, 'removed')).toBe(removed);
    });

    it('leaves the instance frozen and intact', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const instance = await fixture.started();
      await fixture.subject.program.write(instance, 'a', 'one');
      await sealed(fixture.subject, instance);
      expect(await fixture.observed(instance)).toEqual({ is: 'frozen' });
      expect(await fixture.subject.program.write(instance, 'a', 'two')).toBe(false);
      await fixture.subject.runtime.thaw(instance, null, unhurried);
      expect(await fixture.subject.program.read(instance, 'a')).toBe('one');
    });

    it('leaves the instance frozen and intact when it fails or is aborted, and can be repeated', async ({
      skip,
    }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const instance = await fixture.started();
      await fixture.subject.program.write(instance, 'a', 'one');
      await fixture.subject.runtime.freeze(instance, unhurried);
      // An external checkpoint needs no staging directory.
      if (fixture.template.path !== null) {
        const nowhere = {
          checkpointId: fixture.template.id,
          path: `${fixture.template.path}/not/there`,
        } as const;
        await expect(
          fixture.subject.runtime.capture(instance, 'files', nowhere, unhurried),
        ).rejects.toThrow();
      }
      const again = sealing(fixture.subject, (staging) =>
        fixture.subject.runtime.capture(instance, 'files', staging, AbortSignal.abort()),
      );
      await again.catch(() => {});
      expect(await fixture.observed(instance)).toEqual({ is: 'frozen' });
      const checkpoint = await paused(fixture.subject, instance);
      const elsewhere = await fixture.started(checkpoint);
      expect(await fixture.subject.program.read(elsewhere, 'a')).toBe('one');
    });

    it('refuses an instance that is not frozen', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const instance = await fixture.started();
      const capture = sealing(fixture.subject, (staging) =>
        fixture.subject.runtime.capture(instance, 'files', staging, unhurried),
      );
      await expect(capture).rejects.toThrow();
      expect(await fixture.observed(instance)).toEqual({ is: 'running' });
    });
  });

  describe('freeze and thaw', () => {
    it('stop the program and let it run on, and may be repeated', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const instance = await fixture.started();
      const { runtime, program } = fixture.subject;
      await program.write(instance, 'a', 'one');
      for (let times = 0; times < 2; times++) await runtime.freeze(instance, unhurried);
      expect(await fixture.observed(instance)).toEqual({ is: 'frozen' });
      expect(await program.write(instance, 'a', 'two')).toBe(false);
      for (let times = 0; times < 2; times++) await runtime.thaw(instance, null, unhurried);
      expect(await fixture.observed(instance)).toEqual({ is: 'running' });
      expect(await program.write(instance, 'a', 'three')).toBe(true);
      expect(await program.read(instance, 'a')).toBe('three');
    });

    it('keep a sealed checkpoint unchanged while the instance runs on', async ({ skip }) => {
      skip(!fixture.can.snapshotWhileRunning, 'it cannot make a snapshot of a running instance');
      const instance = await fixture.started();
      await fixture.subject.program.write(instance, 'a', 'one');
      const checkpoint = await sealed(fixture.subject, instance, 'files', 'snapshot');
      expect(await fixture.observed(instance)).toEqual({ is: 'frozen' });
      const before = await contentOf(fixture.subject, checkpoint);
      await fixture.subject.runtime.thaw(instance, checkpoint.id, unhurried);

      await fixture.subject.program.write(instance, 'a', 'two');
      await fixture.subject.program.write(instance, 'more', 'new');

      expect(await contentOf(fixture.subject, checkpoint)).toEqual(before);
      const elsewhere = await fixture.started(checkpoint);
      expect(await fixture.subject.program.read(elsewhere, 'a')).toBe('one');
      expect(await fixture.subject.program.read(elsewhere, 'more')).toBeUndefined();
      expect(await fixture.subject.program.read(instance, 'a')).toBe('two');
    });

    it('allow several snapshots of one run, one after the other', async ({ skip }) => {
      skip(!fixture.can.snapshotWhileRunning, 'it cannot make a snapshot of a running instance');
      const instance = await fixture.started();
      const checkpoints: SealedCheckpoint[] = [];
      for (const text of ['one', 'two', 'three']) {
        await fixture.subject.program.write(instance, 'a', text);
        checkpoints.push(await snapshotted(fixture.subject, instance));
      }
      const texts: (string | undefined)[] = [];
      for (const checkpoint of checkpoints) {
        texts.push(await fixture.subject.program.read(await fixture.started(checkpoint), 'a'));
      }
      expect(texts).toEqual(['one', 'two', 'three']);
    });

    it('refuse an instance that is dead or unknown', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const dead = await fixture.started();
      await fixture.subject.kill(dead);
      for (const instance of [dead, newInstance()]) {
        expect((await failureOf(fixture.subject.runtime.freeze(instance, unhurried))).code).toBe(
          'unreachable',
        );
        expect((await failureOf(fixture.subject.runtime.thaw(instance, null, unhurried))).code).toBe(
          'unreachable',
        );
      }
    });
  });

  describe('recoverFiles', () => {
    it('keeps the files of an instance that died', async ({ skip }) => {
      skip(!fixture.keepsFiles, 'nothing survives the end of an instance');
      const instance = await fixture.started();
      await fixture.subject.program.write(instance, 'a', 'one');
      await fixture.subject.kill(instance);
      const checkpoint = await sealing(fixture.subject, (staging) =>
        fixture.subject.runtime.recoverFiles(instance, staging, unhurried),
      );
      expect(checkpoint.parts).toEqual({ files: true, memory: false });
      await fixture.subject.runtime.destroy(instance, unhurried);
      const elsewhere = await fixture.started(checkpoint);
      expect(await fixture.subject.program.read(elsewhere, 'a')).toBe('one');
    });

    it('fails with checkpoint_missing when nothing is left', async () => {
      const wiped = await fixture.started();
      await fixture.subject.wipe(wiped);
      for (const instance of [wiped, newInstance()]) {
        const recovering = sealing(fixture.subject, (staging) =>
          fixture.subject.runtime.recoverFiles(instance, staging, unhurried),
        );
        expect((await failureOf(recovering)).code).toBe('checkpoint_missing');
      }
    });
  });

  describe('a checkpoint', () => {
    it('starts two instances that are then independent', async ({ skip }) => {
      skip(!fixture.can.fork, 'it cannot fork');
      const origin = await fixture.started();
      await fixture.subject.program.write(origin, 'a', 'shared');
      const take = fixture.can.replayable ? paused : snapshotted;
      const checkpoint = await take(fixture.subject, origin);
      const [left, right] = [await fixture.started(checkpoint), await fixture.started(checkpoint)];
      await fixture.subject.program.write(left, 'a', 'left');
      await fixture.subject.program.write(right, 'b', 'right');
      expect(await fixture.subject.program.read(left, 'a')).toBe('left');
      expect(await fixture.subject.program.read(left, 'b')).toBeUndefined();
      expect(await fixture.subject.program.read(right, 'a')).toBe('shared');
    });

    it('allows its instance to stay in memory, not listed, until the sandbox is started from the checkpoint or destroyed', async ({
      skip,
    }) => {
      skip(fixture.can.pause !== 'memory' || !fixture.can.replayable, 'it keeps no memory, or only once');
      const { runtime, program } = fixture.subject;
      const instance = await fixture.started();
      await program.write(instance, 'a', 'one');
      const checkpoint = await sealed(fixture.subject, instance, 'memory');
      await runtime.destroy(instance, unhurried, checkpoint.id);
      expect(await listedInstances(runtime)).toEqual([]);
      const next = nextOf(instance);
      expect((await startFrom(fixture.subject, next, checkpoint, 'memory')).mode).toBe('memory');
      expect(await program.read(next, 'a')).toBe('one');
      expect(await program.counter?.(next)).toBe(1);
      const again = await sealed(fixture.subject, next, 'memory');
      await runtime.destroy(next, unhurried, again.id);
      await runtime.destroy(next, unhurried);
      expect(runtime.warmth?.(next.sandboxId, again.id).warm ?? false).toBe(false);
      // The earlier checkpoint is as it was, whatever the instance did since.
      const third = nextOf(next);
      await startFrom(fixture.subject, third, checkpoint, 'memory');
      expect(await program.counter?.(third)).toBe(1);
    });

    it('passes checkUsable and verify as it was sealed', async () => {
      await fixture.subject.runtime.checkUsable(fixture.template, unhurried);
      await fixture.subject.runtime.verify(fixture.template, unhurried);
    });

    it('is refused by checkUsable and by start when it is missing or damaged', async () => {
      for (const how of fixture.subject.damages ?? (['missing', 'corrupt'] as const)) {
        const checkpoint = await vulnerable(fixture);
        await fixture.subject.damage(checkpoint, how);
        const code = how === 'missing' ? 'checkpoint_missing' : 'checkpoint_corrupt';
        const inspection = fixture.subject.runtime.checkUsable(checkpoint, unhurried);
        expect(await failureOf(inspection)).toMatchObject({ code, checkpointId: checkpoint.id });
        const instance = newInstance();
        expect(await failureOf(startFrom(fixture.subject, instance, checkpoint))).toMatchObject({ code });
        await fixture.subject.runtime.destroy(instance, unhurried);
      }
      expect(await listedInstances(fixture.subject.runtime)).toEqual([]);
    });

    it('whose memory alone is missing or damaged can still be started from its files (R91, R93)', async ({
      skip,
    }) => {
      const { runtime, store, program, memoryDamages } = fixture.subject;
      skip(fixture.can.pause !== 'memory', 'it does not keep memory');
      skip(memoryDamages === undefined, 'its memory cannot be told from the rest');
      const { memoryEntries: names } = runtime;
      for (const [what, damage] of Object.entries(memoryDamages ?? {})) {
        const instance = await fixture.started();
        await program.write(instance, 'a', what);
        const checkpoint = await paused(fixture.subject, instance, 'memory');
        await damage(checkpoint);
        const memory = store.inspect(checkpoint.id, unhurried, { how: 'only', names });
        expect((await failureOf(memory)).code, what).toMatch(/^checkpoint_(missing|corrupt)$/);
        // Neither the store nor the runtime finds a fault in the files.
        await store.inspect(checkpoint.id, unhurried, { how: 'except', names });
        await store.verify(checkpoint.id, unhurried, { how: 'except', names });
        await runtime.checkUsable(checkpoint, unhurried);
        await runtime.verify(checkpoint, unhurried);
        const restarted = newInstance();
        const result = await startFrom(fixture.subject, restarted, checkpoint, 'files');
        expect(result, what).toEqual({ mode: 'files', lost: ['processes'] });
        expect(await program.read(restarted, 'a')).toBe(what);
        await runtime.destroy(restarted, unhurried);
      }
    });

    it('that is external is gone once it is discarded', async ({ skip }) => {
      skip(fixture.template.path !== null, 'it is kept here');
      skip(!fixture.keepsFiles, 'it cannot pause');
      const { runtime, program } = fixture.subject;
      const instance = await fixture.started();
      await program.write(instance, 'a', 'one');
      if (fixture.can.snapshotWhileRunning) {
        const beside = await snapshotted(fixture.subject, instance);
        for (let times = 0; times < 2; times++) await runtime.discard(beside, unhurried);
        expect((await failureOf(runtime.checkUsable(beside, unhurried))).code).toBe('checkpoint_missing');
        expect((await failureOf(startFrom(fixture.subject, newInstance(), beside))).code).toBe(
          'checkpoint_missing',
        );
        expect(await program.read(instance, 'a')).toBe('one');
      }
      const checkpoint = await paused(fixture.subject, instance);
      for (let times = 0; times < 2; times++) await runtime.discard(checkpoint, unhurried);
      expect((await failureOf(runtime.checkUsable(checkpoint, unhurried))).code).toBe('checkpoint_missing');
      expect(await listedInstances(runtime)).toEqual([]);
    });

    it('can be discarded more than once', async () => {
      for (let times = 0; times < 2; times++)
        await fixture.subject.runtime.discard(fixture.template, unhurried);
    });
  });

  describe('capabilities', () => {
    it('without a pause: freeze and capture are refused and the instance runs on', async ({ skip }) => {
      skip(fixture.can.pause !== 'none', 'it can pause');
      const instance = await fixture.started();
      const freeze = fixture.subject.runtime.freeze(instance, unhurried);
      expect((await failureOf(freeze)).code).toBe('capability_unsupported');
      const capture = sealing(fixture.subject, (staging) =>
        fixture.subject.runtime.capture(instance, 'files', staging, unhurried),
      );
      expect((await failureOf(capture)).code).toBe('capability_unsupported');
      expect(await fixture.observed(instance)).toEqual({ is: 'running' });
    });

    it('without memory: capturing it is refused and the instance stays frozen', async ({ skip }) => {
      skip(fixture.can.pause !== 'files', 'it keeps memory, or nothing');
      const instance = await fixture.started();
      await fixture.subject.runtime.freeze(instance, unhurried);
      const capture = sealing(fixture.subject, (staging) =>
        fixture.subject.runtime.capture(instance, 'memory', staging, unhurried),
      );
      expect((await failureOf(capture)).code).toBe('capability_unsupported');
      expect(await fixture.observed(instance)).toEqual({ is: 'frozen' });
    });

    it('with memory: the processes are restored, or reported as lost', async ({ skip }) => {
      skip(fixture.can.pause !== 'memory', 'it does not keep memory');
      const instance = await fixture.started();
      await fixture.subject.program.write(instance, 'a', 'one');
      const counted = await fixture.subject.program.counter?.(instance);
      const checkpoint = await paused(fixture.subject, instance, 'memory');
      expect(checkpoint.parts).toEqual({ files: true, memory: true });

      const awake = newInstance();
      expect(await startFrom(fixture.subject, awake, checkpoint, 'memory')).toEqual({
        mode: 'memory',
        lost: [],
      });
      expect(await fixture.subject.program.counter?.(awake)).toBe(counted);
      const restarted = newInstance();
      const again = fixture.can.replayable ? checkpoint : await paused(fixture.subject, awake, 'memory');
      const result = await startFrom(fixture.subject, restarted, again, 'files');
      expect(result).toEqual({ mode: 'files', lost: ['processes'] });
      expect(await fixture.subject.program.read(restarted, 'a')).toBe('one');
    });
  });
}

/** A checkpoint to damage. The template of a provider cannot be damaged, so a paused instance is used instead. */
async function vulnerable(fixture: ContractFixture): Promise<SealedCheckpoint> {
  if (fixture.template.path !== null) return templateOf(fixture.subject);
  return paused(fixture.subject, await fixture.started());
}
