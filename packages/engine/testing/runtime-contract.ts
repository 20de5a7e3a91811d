/**
 * What every runtime must do. An implementation passes by one call of `describeRuntimeContract` in its
 * tests. What a runtime does not declare is tested to be refused; the rest it must keep.
 */

import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Runtime, SealedCheckpoint } from '../src/ports/runtime.ts';
import {
  failureOf,
  listedInstances,
  NO_SPEC,
  newInstance,
  nextOf,
  paused,
  type RuntimeUnderTest,
  sealed,
  sealing,
  startFrom,
  templateOf,
  unhurried,
} from './runtime-subject.ts';

export function describeRuntimeContract(name: string, make: () => Promise<RuntimeUnderTest>): void {
  describe(`runtime contract: ${name}`, () => {
    let subject: RuntimeUnderTest;
    let template: SealedCheckpoint;

    beforeEach(async () => {
      subject = await make();
      template = await templateOf(subject);
    });
    afterEach(() => subject.dispose());

    const its = () => subject.runtime.capabilities();
    const started = async (from = template, use: 'memory' | 'files' = 'files', instance = newInstance()) => {
      await startFrom(subject, instance, from, use);
      return instance;
    };
    const observed = (instance = newInstance(), runtime = subject.runtime) =>
      runtime.observe(instance, unhurried);

    describe('start', () => {
      it('runs a new instance from a template, of which nothing came back from memory', async () => {
        const instance = newInstance();
        const { kind } = await startFrom(subject, instance, template);
        expect(kind).toBe('files');
        expect(await observed(instance)).toEqual({ is: 'running' });
        expect(await subject.program.write(instance, 'hello', 'world')).toBe(true);
        expect(await subject.program.read(instance, 'hello')).toBe('world');
      });

      it('leaves nothing behind once an aborted one is destroyed', async () => {
        const signals = [AbortSignal.abort(), AbortSignal.timeout(0), AbortSignal.timeout(40)];
        for (const signal of signals) {
          const instance = newInstance();
          await subject.runtime.start(instance, template, 'files', NO_SPEC, signal).catch(() => {});
          await subject.runtime.destroy(instance, unhurried);
          expect(await observed(instance)).toMatchObject({ is: 'gone', files: false });
        }
        expect(await listedInstances(subject.runtime)).toEqual([]);
      });

      it('is ended by a destroy that comes while it is under way', async () => {
        const instance = newInstance();
        const stop = new AbortController();
        const starting = subject.runtime
          .start(instance, template, 'files', NO_SPEC, stop.signal)
          .catch(() => {});
        stop.abort();
        await subject.runtime.destroy(instance, unhurried);
        await starting;
        expect(await listedInstances(subject.runtime)).toEqual([]);
      });
    });

    describe('capture', () => {
      it('keeps the files for a start elsewhere', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const instance = await started();
        await subject.program.write(instance, 'a', 'one');
        await subject.program.write(instance, 'b', 'two');
        const checkpoint = await paused(subject, instance);
        expect(checkpoint.parts).toEqual({ files: true, memory: false });

        const elsewhere = newInstance();
        const result = await startFrom(subject, elsewhere, checkpoint);

        expect(result).toEqual({ kind: 'files', lost: ['processes'] });
        expect(await subject.program.read(elsewhere, 'a')).toBe('one');
        expect(await subject.program.read(elsewhere, 'b')).toBe('two');
      });

      it('keeps edits and removals over several cycles', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        let instance = await started();
        await subject.program.write(instance, 'kept', 'as it was');
        await subject.program.write(instance, 'removed', 'soon gone');
        for (const text of ['first', 'second', 'third']) {
          await subject.program.write(instance, 'edited', text);
          if (text === 'second') await subject.program.remove?.(instance, 'removed');
          const checkpoint = await paused(subject, instance);
          instance = await started(checkpoint, 'files', nextOf(instance));
          expect(await subject.program.read(instance, 'edited')).toBe(text);
        }
        expect(await subject.program.read(instance, 'kept')).toBe('as it was');
        const removed = subject.program.remove === undefined ? 'soon gone' : undefined;
        expect(await subject.program.read(instance, 'removed')).toBe(removed);
      });

      it('leaves the instance frozen and whole', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const instance = await started();
        await subject.program.write(instance, 'a', 'one');
        await sealed(subject, instance);
        expect(await observed(instance)).toEqual({ is: 'frozen' });
        expect(await subject.program.write(instance, 'a', 'two')).toBe(false);
        await subject.runtime.thaw(instance, null, unhurried);
        expect(await subject.program.read(instance, 'a')).toBe('one');
      });

      it('leaves the instance frozen and whole when it fails or is aborted, and can be asked again', async ({
        skip,
      }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const instance = await started();
        await subject.program.write(instance, 'a', 'one');
        await subject.runtime.freeze(instance, unhurried);
        const nowhere = { checkpointId: template.id, path: `${template.path}/not/there` } as const;
        await expect(subject.runtime.capture(instance, 'files', nowhere, unhurried)).rejects.toThrow();
        const again = sealing(subject, (staging) =>
          subject.runtime.capture(instance, 'files', staging, AbortSignal.abort()),
        );
        await again.catch(() => {});
        expect(await observed(instance)).toEqual({ is: 'frozen' });
        const checkpoint = await paused(subject, instance);
        const elsewhere = await started(checkpoint);
        expect(await subject.program.read(elsewhere, 'a')).toBe('one');
      });

      it('refuses an instance that is not frozen', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const instance = await started();
        const capture = sealing(subject, (staging) =>
          subject.runtime.capture(instance, 'files', staging, unhurried),
        );
        await expect(capture).rejects.toThrow();
        expect(await observed(instance)).toEqual({ is: 'running' });
      });
    });

    describe('freeze and thaw', () => {
      it('stop the program and let it go on, and may be repeated', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const instance = await started();
        const { runtime, program } = subject;
        await program.write(instance, 'a', 'one');
        for (let times = 0; times < 2; times++) await runtime.freeze(instance, unhurried);
        expect(await observed(instance)).toEqual({ is: 'frozen' });
        expect(await program.write(instance, 'a', 'two')).toBe(false);
        for (let times = 0; times < 2; times++) await runtime.thaw(instance, null, unhurried);
        expect(await observed(instance)).toEqual({ is: 'running' });
        expect(await program.write(instance, 'a', 'three')).toBe(true);
        expect(await program.read(instance, 'a')).toBe('three');
      });

      it('keep a sealed checkpoint as it is while the instance goes on', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const instance = await started();
        await subject.program.write(instance, 'a', 'one');
        const checkpoint = await sealed(subject, instance);
        const before = await subject.store.verify(checkpoint.id);
        await subject.runtime.thaw(instance, checkpoint.id, unhurried);

        await subject.program.write(instance, 'a', 'two');
        await subject.program.write(instance, 'more', 'new');

        expect(await subject.store.verify(checkpoint.id)).toEqual(before);
        const elsewhere = await started(checkpoint);
        expect(await subject.program.read(elsewhere, 'a')).toBe('one');
        expect(await subject.program.read(elsewhere, 'more')).toBeUndefined();
        expect(await subject.program.read(instance, 'a')).toBe('two');
      });

      it('let the checkpoints of one run be sealed one after the other', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const instance = await started();
        const checkpoints: SealedCheckpoint[] = [];
        for (const text of ['one', 'two', 'three']) {
          await subject.program.write(instance, 'a', text);
          const checkpoint = await sealed(subject, instance);
          await subject.runtime.thaw(instance, checkpoint.id, unhurried);
          checkpoints.push(checkpoint);
        }
        const texts: (string | undefined)[] = [];
        for (const checkpoint of checkpoints) {
          texts.push(await subject.program.read(await started(checkpoint), 'a'));
        }
        expect(texts).toEqual(['one', 'two', 'three']);
      });

      it('refuse an instance that is dead or was never there', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const dead = await started();
        await subject.kill(dead);
        for (const instance of [dead, newInstance()]) {
          expect((await failureOf(subject.runtime.freeze(instance, unhurried))).code).toBe('unreachable');
          expect((await failureOf(subject.runtime.thaw(instance, null, unhurried))).code).toBe('unreachable');
        }
      });
    });

    describe('observe', () => {
      it('says gone, with files, of an instance whose processes died', async () => {
        const instance = await started();
        await subject.kill(instance);
        const found = await observed(instance);
        expect(found).toMatchObject({ is: 'gone', files: true });
        expect('why' in found && found.why).not.toBe('');
      });

      it('says gone, without files, of what is wiped, destroyed, of another generation or never was', async () => {
        const wiped = await started();
        await subject.wipe(wiped);
        const destroyed = await started();
        await subject.runtime.destroy(destroyed, unhurried);
        const other = nextOf(await started());
        for (const instance of [wiped, destroyed, other, newInstance()]) {
          expect(await observed(instance)).toMatchObject({ is: 'gone', files: false });
        }
      });
    });

    describe('agent and dial', () => {
      it('lead nowhere when the instance is dead or was never there', async () => {
        const dead = await started();
        await subject.kill(dead);
        for (const instance of [dead, newInstance()]) {
          expect((await failureOf(subject.runtime.agent(instance, unhurried))).code).toBe('unreachable');
          expect(await subject.runtime.dial(instance, 80, unhurried)).toBeNull();
        }
      });

      it('never lead to a port on which only the host listens', async () => {
        const instance = await started();
        const host = createServer();
        await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
        try {
          const { port } = host.address() as AddressInfo;
          expect(await subject.runtime.dial(instance, port, unhurried)).toBeNull();
        } finally {
          await new Promise((resolve) => host.close(resolve));
        }
      });
    });

    describe('salvage', () => {
      it('keeps the files of an instance that died', async () => {
        const instance = await started();
        await subject.program.write(instance, 'a', 'one');
        await subject.kill(instance);
        const checkpoint = await sealing(subject, (staging) =>
          subject.runtime.salvage(instance, staging, unhurried),
        );
        expect(checkpoint.parts).toEqual({ files: true, memory: false });
        await subject.runtime.destroy(instance, unhurried);
        const elsewhere = await started(checkpoint);
        expect(await subject.program.read(elsewhere, 'a')).toBe('one');
      });

      it('says checkpoint_missing when nothing is left', async () => {
        const wiped = await started();
        await subject.wipe(wiped);
        for (const instance of [wiped, newInstance()]) {
          const salvage = sealing(subject, (staging) =>
            subject.runtime.salvage(instance, staging, unhurried),
          );
          expect((await failureOf(salvage)).code).toBe('checkpoint_missing');
        }
      });
    });

    describe('destroy', () => {
      it('may be repeated, at once and later, and of what never was', async () => {
        const instance = await started();
        const { runtime } = subject;
        await Promise.all([1, 2, 3].map(() => runtime.destroy(instance, unhurried)));
        await runtime.destroy(instance, unhurried);
        await runtime.destroy(newInstance(), unhurried);
        expect(await observed(instance)).toMatchObject({ is: 'gone', files: false });
      });

      it('ends a frozen instance and a dead one', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const frozen = await started();
        await subject.runtime.freeze(frozen, unhurried);
        const dead = await started();
        await subject.kill(dead);
        for (const instance of [frozen, dead]) await subject.runtime.destroy(instance, unhurried);
        expect(await listedInstances(subject.runtime)).toEqual([]);
      });

      it('ends what is up to the generation, and leaves newer ones and other sandboxes alone', async () => {
        const { runtime, program } = subject;
        const old = await started();
        await subject.kill(old);
        const present = await started(template, 'files', nextOf(old));
        const other = await started();
        await program.write(present, 'a', 'one');

        await runtime.destroy(old, unhurried);

        expect(await observed(old)).toMatchObject({ is: 'gone', files: false });
        expect(await program.read(present, 'a')).toBe('one');
        await runtime.destroy(nextOf(present), unhurried);
        expect(await observed(present)).toMatchObject({ is: 'gone', files: false });
        expect(await listedInstances(runtime)).toEqual([other]);
      });

      it('leaves sealed checkpoints alone', async ({ skip }) => {
        skip(its().pause === 'none', 'it cannot pause');
        const checkpoint = await sealed(subject, await started());
        const before = await subject.store.verify(checkpoint.id);
        for (const instance of await listedInstances(subject.runtime)) {
          await subject.runtime.destroy(instance, unhurried);
        }
        expect(await subject.store.verify(checkpoint.id)).toEqual(before);
      });
    });

    describe('list', () => {
      it('shows exactly what is there, alive or dead, and nothing after it is destroyed', async () => {
        const { runtime } = subject;
        const alive = await started();
        const dead = await started();
        await subject.kill(dead);
        const both = [alive, dead].sort((a, b) => a.sandboxId.localeCompare(b.sandboxId));
        expect(await listedInstances(runtime)).toEqual(both);
        await runtime.destroy(dead, unhurried);
        expect(await listedInstances(runtime)).toEqual([alive]);
        await runtime.destroy(alive, unhurried);
        expect(await listedInstances(runtime)).toEqual([]);
      });
    });

    describe('a checkpoint', () => {
      it('starts two instances that then go their own ways', async ({ skip }) => {
        skip(!its().fork || !its().replayable, 'it cannot fork');
        const origin = await started();
        await subject.program.write(origin, 'a', 'shared');
        const checkpoint = await paused(subject, origin);
        const [left, right] = [await started(checkpoint), await started(checkpoint)];
        await subject.program.write(left, 'a', 'left');
        await subject.program.write(right, 'b', 'right');
        expect(await subject.program.read(left, 'a')).toBe('left');
        expect(await subject.program.read(left, 'b')).toBeUndefined();
        expect(await subject.program.read(right, 'a')).toBe('shared');
      });

      it('passes inspect and verify as it was sealed', async () => {
        await subject.runtime.inspect(template, unhurried);
        await subject.runtime.verify(template, unhurried);
      });

      it('is refused by inspect and by start when it is missing or damaged', async () => {
        for (const how of ['missing', 'corrupt'] as const) {
          const checkpoint = await templateOf(subject);
          await subject.damage(checkpoint, how);
          const code = how === 'missing' ? 'checkpoint_missing' : 'checkpoint_corrupt';
          const inspection = subject.runtime.inspect(checkpoint, unhurried);
          expect(await failureOf(inspection)).toMatchObject({ code, checkpointId: checkpoint.id });
          const instance = newInstance();
          expect(await failureOf(startFrom(subject, instance, checkpoint))).toMatchObject({ code });
          await subject.runtime.destroy(instance, unhurried);
        }
        expect(await listedInstances(subject.runtime)).toEqual([]);
      });

      it('can be discarded more than once', async () => {
        for (let times = 0; times < 2; times++) await subject.runtime.discard(template, unhurried);
      });
    });

    describe('capabilities', () => {
      it('without a pause: freeze and capture are refused and the instance runs on', async ({ skip }) => {
        skip(its().pause !== 'none', 'it can pause');
        const instance = await started();
        const freeze = subject.runtime.freeze(instance, unhurried);
        expect((await failureOf(freeze)).code).toBe('capability_unsupported');
        const capture = sealing(subject, (staging) =>
          subject.runtime.capture(instance, 'files', staging, unhurried),
        );
        expect((await failureOf(capture)).code).toBe('capability_unsupported');
        expect(await observed(instance)).toEqual({ is: 'running' });
      });

      it('without memory: capturing it is refused and the instance stays frozen', async ({ skip }) => {
        skip(its().pause !== 'files', 'it keeps memory, or nothing');
        const instance = await started();
        await subject.runtime.freeze(instance, unhurried);
        const capture = sealing(subject, (staging) =>
          subject.runtime.capture(instance, 'memory', staging, unhurried),
        );
        expect((await failureOf(capture)).code).toBe('capability_unsupported');
        expect(await observed(instance)).toEqual({ is: 'frozen' });
      });

      it('with memory: the processes come back as they were, or are said to be lost', async ({ skip }) => {
        skip(its().pause !== 'memory', 'it does not keep memory');
        const instance = await started();
        await subject.program.write(instance, 'a', 'one');
        const counted = await subject.program.counter?.(instance);
        const checkpoint = await paused(subject, instance, 'memory');
        expect(checkpoint.parts).toEqual({ files: true, memory: true });

        const awake = newInstance();
        expect(await startFrom(subject, awake, checkpoint, 'memory')).toEqual({ kind: 'memory', lost: [] });
        expect(await subject.program.counter?.(awake)).toBe(counted);
        const restarted = newInstance();
        const result = await startFrom(subject, restarted, checkpoint, 'files');
        expect(result).toEqual({ kind: 'files', lost: ['processes'] });
        expect(await subject.program.read(restarted, 'a')).toBe('one');
      });
    });

    describe('a restarted server', () => {
      const reopened = async (skip: (condition: boolean, note: string) => void): Promise<Runtime> => {
        const { reopen } = subject;
        skip(reopen === undefined, 'its instances end with the server');
        return (reopen as () => Promise<Runtime>)();
      };

      it('finds running, frozen and dead instances again', async ({ skip }) => {
        skip(subject.reopen === undefined, 'its instances end with the server');
        const running = await started();
        const frozen = await started();
        await subject.runtime.freeze(frozen, unhurried);
        const dead = await started();
        await subject.kill(dead);

        const later = await reopened(skip);

        expect(await observed(running, later)).toEqual({ is: 'running' });
        expect(await observed(frozen, later)).toEqual({ is: 'frozen' });
        expect(await observed(dead, later)).toMatchObject({ is: 'gone', files: true });
        expect(await listedInstances(later)).toEqual(await listedInstances(subject.runtime));
        expect(await later.agent(running, unhurried)).toEqual(
          await subject.runtime.agent(running, unhurried),
        );
        await later.thaw(frozen, null, unhurried);
        expect(await subject.program.write(frozen, 'a', 'one')).toBe(true);
      });

      it('dials, captures and destroys what the first one started', async ({ skip }) => {
        skip(subject.reopen === undefined, 'its instances end with the server');
        const instance = await started();
        await subject.program.write(instance, 'a', 'one');
        const port = await freePort();
        await subject.program.listen?.(instance, port);

        const later = await reopened(skip);

        const dialled = await later.dial(instance, port, unhurried);
        expect(dialled === null).toBe(subject.program.listen === undefined);
        const checkpoint = await paused({ runtime: later, store: subject.store }, instance);
        expect(await listedInstances(later)).toEqual([]);
        const elsewhere = newInstance();
        await startFrom({ runtime: later, store: subject.store }, elsewhere, checkpoint);
        expect(await subject.program.read(elsewhere, 'a')).toBe('one');
      });
    });
  });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
