/**
 * The contract of every runtime. An implementation calls `describeRuntimeContract` once in its tests. The suite checks
 * that a runtime refuses what it does not declare, and does what it declares.
 */
import { type AddressInfo, createServer } from 'node:net';
import { afterAll, afterEach, beforeEach, describe, expect } from 'vitest';
import type { Runtime } from '../src/ports/runtime.ts';
import { describeSealing } from './runtime-sealing-contract.ts';
import {
  ContractFixture,
  contentOf,
  failureOf,
  listedInstances,
  NO_SPEC,
  newInstance,
  nextOf,
  paused,
  type RuntimeUnderTest,
  sealed,
  startFrom,
  templateOf,
  unhurried,
} from './runtime-subject.ts';

/** `only` selects tests by name, for runtimes where all of them take too long. */
export function describeRuntimeContract(
  name: string,
  make: () => Promise<RuntimeUnderTest>,
  only?: readonly string[],
): void {
  describe(`runtime contract: ${name} (R66, R83)`, () => {
    const fixture = new ContractFixture(only);

    beforeEach(async () => {
      fixture.subject = await make();
      fixture.template = (await fixture.subject.sharedTemplate?.()) ?? (await templateOf(fixture.subject));
    });
    afterEach(() => fixture.subject.dispose());

    describeInstances(fixture);
    describeSealing(fixture);
    afterAll(() => expect([...fixture.unknown]).toEqual([]));
  });
}

/** Starting, observing, listing and destroying instances. */
function describeInstances(fixture: ContractFixture): void {
  const { it } = fixture;
  describe('start', () => {
    it('runs a new instance from a template without memory', async () => {
      const instance = newInstance();
      const { mode: kind } = await startFrom(fixture.subject, instance, fixture.template);
      expect(kind).toBe('files');
      expect(await fixture.observed(instance)).toEqual({ is: 'running' });
      expect(await fixture.subject.program.write(instance, 'hello', 'world')).toBe(true);
      expect(await fixture.subject.program.read(instance, 'hello')).toBe('world');
    });

    it('leaves nothing behind when it is aborted and the instance destroyed', async () => {
      const signals = [AbortSignal.abort(), AbortSignal.timeout(0), AbortSignal.timeout(40)];
      for (const signal of signals) {
        const instance = newInstance();
        await fixture.subject.runtime
          .start(instance, fixture.template, 'files', NO_SPEC, signal)
          .catch(() => {});
        await fixture.subject.runtime.destroy(instance, unhurried);
        expect(await fixture.observed(instance)).toMatchObject({ is: 'gone', files: false });
      }
      expect(await listedInstances(fixture.subject.runtime)).toEqual([]);
    });

    it('is ended by a concurrent destroy', async () => {
      const instance = newInstance();
      const stop = new AbortController();
      const starting = fixture.subject.runtime
        .start(instance, fixture.template, 'files', NO_SPEC, stop.signal)
        .catch(() => {});
      stop.abort();
      await fixture.subject.runtime.destroy(instance, unhurried);
      await starting;
      expect(await listedInstances(fixture.subject.runtime)).toEqual([]);
    });
  });

  describe('observe', () => {
    it('returns gone, with files if the runtime can pause, for an instance whose processes died', async () => {
      const instance = await fixture.started();
      await fixture.subject.kill(instance);
      const found = await fixture.observed(instance);
      expect(found).toMatchObject({ is: 'gone', ...fixture.filesOfTheDead });
      expect('why' in found && found.why).not.toBe('');
    });

    it('returns gone, without files, for an instance that is wiped, destroyed, of another generation or unknown', async () => {
      const wiped = await fixture.started();
      await fixture.subject.wipe(wiped);
      const destroyed = await fixture.started();
      await fixture.subject.runtime.destroy(destroyed, unhurried);
      const other = nextOf(await fixture.started());
      for (const instance of [wiped, destroyed, other, newInstance()]) {
        expect(await fixture.observed(instance)).toMatchObject({ is: 'gone', files: false });
      }
    });
  });

  describe('agent and dial', () => {
    it('fail when the instance is dead or unknown', async () => {
      const dead = await fixture.started();
      await fixture.subject.kill(dead);
      for (const instance of [dead, newInstance()]) {
        expect((await failureOf(fixture.subject.runtime.agent(instance, unhurried))).code).toBe(
          'unreachable',
        );
        expect(await fixture.subject.runtime.dial(instance, 80, unhurried)).toBeNull();
      }
    });

    it('never return a port on which only the host listens', async () => {
      const instance = await fixture.started();
      const host = createServer();
      await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
      try {
        const { port } = host.address() as AddressInfo;
        expect(await fixture.subject.runtime.dial(instance, port, unhurried)).toBeNull();
      } finally {
        await new Promise((resolve) => host.close(resolve));
      }
    });
  });

  describe('destroy', () => {
    it('may be repeated, concurrently and later, and for an unknown instance', async () => {
      const instance = await fixture.started();
      const { runtime } = fixture.subject;
      await Promise.all([1, 2, 3].map(() => runtime.destroy(instance, unhurried)));
      await runtime.destroy(instance, unhurried);
      await runtime.destroy(newInstance(), unhurried);
      expect(await fixture.observed(instance)).toMatchObject({ is: 'gone', files: false });
    });

    it('ends a frozen instance and a dead one', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const frozen = await fixture.started();
      await fixture.subject.runtime.freeze(frozen, unhurried);
      const dead = await fixture.started();
      await fixture.subject.kill(dead);
      for (const instance of [frozen, dead]) await fixture.subject.runtime.destroy(instance, unhurried);
      expect(await listedInstances(fixture.subject.runtime)).toEqual([]);
    });

    it('ends all generations up to the given one, and leaves newer ones and other sandboxes alone', async () => {
      const { runtime, program } = fixture.subject;
      const old = await fixture.started();
      await fixture.subject.kill(old);
      const present = await fixture.started(fixture.template, 'files', nextOf(old));
      const other = await fixture.started();
      await program.write(present, 'a', 'one');

      await runtime.destroy(old, unhurried);

      expect(await fixture.observed(old)).toMatchObject({ is: 'gone', files: false });
      expect(await program.read(present, 'a')).toBe('one');
      await runtime.destroy(nextOf(present), unhurried);
      expect(await fixture.observed(present)).toMatchObject({ is: 'gone', files: false });
      expect(await listedInstances(runtime)).toEqual([other]);
    });

    it('leaves sealed checkpoints alone', async ({ skip }) => {
      skip(fixture.can.pause === 'none', 'it cannot pause');
      const checkpoint = await sealed(fixture.subject, await fixture.started());
      const before = await contentOf(fixture.subject, checkpoint);
      for (const instance of await listedInstances(fixture.subject.runtime)) {
        await fixture.subject.runtime.destroy(instance, unhurried);
      }
      expect(await contentOf(fixture.subject, checkpoint)).toEqual(before);
    });
  });

  describe('list', () => {
    it('shows exactly the existing instances, alive or dead, and none that was destroyed', async () => {
      const { runtime } = fixture.subject;
      const alive = await fixture.started();
      const dead = await fixture.started();
      await fixture.subject.kill(dead);
      const both = [alive, dead].sort((a, b) => a.sandboxId.localeCompare(b.sandboxId));
      expect(await listedInstances(runtime)).toEqual(both);
      await runtime.destroy(dead, unhurried);
      expect(await listedInstances(runtime)).toEqual([alive]);
      await runtime.destroy(alive, unhurried);
      expect(await listedInstances(runtime)).toEqual([]);
    });
  });

  describe('a restarted server', () => {
    const reopened = async () => (await fixture.subject.reopen?.()) as Runtime;

    it('finds running, frozen and dead instances again', async ({ skip }) => {
      skip(fixture.subject.reopen === undefined, 'its instances end with the server');
      const running = await fixture.started();
      const frozen = await fixture.started();
      if (fixture.keepsFiles) await fixture.subject.runtime.freeze(frozen, unhurried);
      const dead = await fixture.started();
      await fixture.subject.kill(dead);

      const later = await reopened();

      expect(await fixture.observed(running, later)).toEqual({ is: 'running' });
      expect(await fixture.observed(frozen, later)).toEqual({
        is: fixture.keepsFiles ? 'frozen' : 'running',
      });
      expect(await fixture.observed(dead, later)).toMatchObject({ is: 'gone', ...fixture.filesOfTheDead });
      expect(await listedInstances(later)).toEqual(await listedInstances(fixture.subject.runtime));
      expect((await later.agent(running, unhurried)).token).toBe(
        (await fixture.subject.runtime.agent(running, unhurried)).token,
      );
      await later.thaw(frozen, null, unhurried);
      expect(await fixture.subject.program.write(frozen, 'a', 'one')).toBe(true);
    });

    it('dials, captures and destroys instances that the first server started', async ({ skip }) => {
      skip(fixture.subject.reopen === undefined, 'its instances end with the server');
      const instance = await fixture.started();
      await fixture.subject.program.write(instance, 'a', 'one');
      const port = await freePort();
      await fixture.subject.program.listen?.(instance, port);

      const later = await reopened();

      const dialled = await later.dial(instance, port, unhurried);
      expect(dialled === null).toBe(fixture.subject.program.listen === undefined);
      if (!fixture.keepsFiles) {
        await later.destroy(instance, unhurried);
        return expect(await listedInstances(later)).toEqual([]);
      }
      const checkpoint = await paused({ runtime: later, store: fixture.subject.store }, instance);
      expect(await listedInstances(later)).toEqual([]);
      const elsewhere = newInstance();
      await startFrom({ runtime: later, store: fixture.subject.store }, elsewhere, checkpoint);
      expect(await fixture.subject.program.read(elsewhere, 'a')).toBe('one');
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
