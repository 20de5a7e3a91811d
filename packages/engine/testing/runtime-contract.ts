/**
 * What every runtime must do. An implementation passes by one call of `describeRuntimeContract` in its
 * tests. What a runtime does not declare is tested to be refused; the rest it must keep.
 */
import { type AddressInfo, createServer } from 'node:net';
import { afterAll, afterEach, beforeEach, describe, expect } from 'vitest';
import type { Runtime } from '../src/ports/runtime.ts';
import { describeSealing } from './runtime-sealing-contract.ts';
import {
  contentOf,
  failureOf,
  listedInstances,
  NO_SPEC,
  newInstance,
  nextOf,
  paused,
  RuntimeBench,
  type RuntimeUnderTest,
  sealed,
  startFrom,
  templateOf,
  unhurried,
} from './runtime-subject.ts';

/** `only` names the tests that are to run, where all of them take too long to be run every time. */
export function describeRuntimeContract(
  name: string,
  make: () => Promise<RuntimeUnderTest>,
  only?: readonly string[],
): void {
  describe(`runtime contract: ${name} (R66, R83)`, () => {
    const bench = new RuntimeBench(only);

    beforeEach(async () => {
      bench.subject = await make();
      bench.template = (await bench.subject.sharedTemplate?.()) ?? (await templateOf(bench.subject));
    });
    afterEach(() => bench.subject.dispose());

    describeInstances(bench);
    describeSealing(bench);
    afterAll(() => expect([...bench.unknown]).toEqual([]));
  });
}

/** How instances come, are found and go. */
function describeInstances(bench: RuntimeBench): void {
  const { it } = bench;
  describe('start', () => {
    it('runs a new instance from a template, of which nothing came back from memory', async () => {
      const instance = newInstance();
      const { kind } = await startFrom(bench.subject, instance, bench.template);
      expect(kind).toBe('files');
      expect(await bench.observed(instance)).toEqual({ is: 'running' });
      expect(await bench.subject.program.write(instance, 'hello', 'world')).toBe(true);
      expect(await bench.subject.program.read(instance, 'hello')).toBe('world');
    });

    it('leaves nothing behind once an aborted one is destroyed', async () => {
      const signals = [AbortSignal.abort(), AbortSignal.timeout(0), AbortSignal.timeout(40)];
      for (const signal of signals) {
        const instance = newInstance();
        await bench.subject.runtime.start(instance, bench.template, 'files', NO_SPEC, signal).catch(() => {});
        await bench.subject.runtime.destroy(instance, unhurried);
        expect(await bench.observed(instance)).toMatchObject({ is: 'gone', files: false });
      }
      expect(await listedInstances(bench.subject.runtime)).toEqual([]);
    });

    it('is ended by a destroy that comes while it is under way', async () => {
      const instance = newInstance();
      const stop = new AbortController();
      const starting = bench.subject.runtime
        .start(instance, bench.template, 'files', NO_SPEC, stop.signal)
        .catch(() => {});
      stop.abort();
      await bench.subject.runtime.destroy(instance, unhurried);
      await starting;
      expect(await listedInstances(bench.subject.runtime)).toEqual([]);
    });
  });

  describe('observe', () => {
    it('says gone, with files, of an instance whose processes died', async () => {
      const instance = await bench.started();
      await bench.subject.kill(instance);
      const found = await bench.observed(instance);
      expect(found).toMatchObject({ is: 'gone', files: true });
      expect('why' in found && found.why).not.toBe('');
    });

    it('says gone, without files, of what is wiped, destroyed, of another generation or never was', async () => {
      const wiped = await bench.started();
      await bench.subject.wipe(wiped);
      const destroyed = await bench.started();
      await bench.subject.runtime.destroy(destroyed, unhurried);
      const other = nextOf(await bench.started());
      for (const instance of [wiped, destroyed, other, newInstance()]) {
        expect(await bench.observed(instance)).toMatchObject({ is: 'gone', files: false });
      }
    });
  });

  describe('agent and dial', () => {
    it('lead nowhere when the instance is dead or was never there', async () => {
      const dead = await bench.started();
      await bench.subject.kill(dead);
      for (const instance of [dead, newInstance()]) {
        expect((await failureOf(bench.subject.runtime.agent(instance, unhurried))).code).toBe('unreachable');
        expect(await bench.subject.runtime.dial(instance, 80, unhurried)).toBeNull();
      }
    });

    it('never lead to a port on which only the host listens', async () => {
      const instance = await bench.started();
      const host = createServer();
      await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
      try {
        const { port } = host.address() as AddressInfo;
        expect(await bench.subject.runtime.dial(instance, port, unhurried)).toBeNull();
      } finally {
        await new Promise((resolve) => host.close(resolve));
      }
    });
  });

  describe('destroy', () => {
    it('may be repeated, at once and later, and of what never was', async () => {
      const instance = await bench.started();
      const { runtime } = bench.subject;
      await Promise.all([1, 2, 3].map(() => runtime.destroy(instance, unhurried)));
      await runtime.destroy(instance, unhurried);
      await runtime.destroy(newInstance(), unhurried);
      expect(await bench.observed(instance)).toMatchObject({ is: 'gone', files: false });
    });

    it('ends a frozen instance and a dead one', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const frozen = await bench.started();
      await bench.subject.runtime.freeze(frozen, unhurried);
      const dead = await bench.started();
      await bench.subject.kill(dead);
      for (const instance of [frozen, dead]) await bench.subject.runtime.destroy(instance, unhurried);
      expect(await listedInstances(bench.subject.runtime)).toEqual([]);
    });

    it('ends what is up to the generation, and leaves newer ones and other sandboxes alone', async () => {
      const { runtime, program } = bench.subject;
      const old = await bench.started();
      await bench.subject.kill(old);
      const present = await bench.started(bench.template, 'files', nextOf(old));
      const other = await bench.started();
      await program.write(present, 'a', 'one');

      await runtime.destroy(old, unhurried);

      expect(await bench.observed(old)).toMatchObject({ is: 'gone', files: false });
      expect(await program.read(present, 'a')).toBe('one');
      await runtime.destroy(nextOf(present), unhurried);
      expect(await bench.observed(present)).toMatchObject({ is: 'gone', files: false });
      expect(await listedInstances(runtime)).toEqual([other]);
    });

    it('leaves sealed checkpoints alone', async ({ skip }) => {
      skip(bench.can.pause === 'none', 'it cannot pause');
      const checkpoint = await sealed(bench.subject, await bench.started());
      const before = await contentOf(bench.subject, checkpoint);
      for (const instance of await listedInstances(bench.subject.runtime)) {
        await bench.subject.runtime.destroy(instance, unhurried);
      }
      expect(await contentOf(bench.subject, checkpoint)).toEqual(before);
    });
  });

  describe('list', () => {
    it('shows exactly what is there, alive or dead, and nothing after it is destroyed', async () => {
      const { runtime } = bench.subject;
      const alive = await bench.started();
      const dead = await bench.started();
      await bench.subject.kill(dead);
      const both = [alive, dead].sort((a, b) => a.sandboxId.localeCompare(b.sandboxId));
      expect(await listedInstances(runtime)).toEqual(both);
      await runtime.destroy(dead, unhurried);
      expect(await listedInstances(runtime)).toEqual([alive]);
      await runtime.destroy(alive, unhurried);
      expect(await listedInstances(runtime)).toEqual([]);
    });
  });

  describe('a restarted server', () => {
    const reopened = async () => (await bench.subject.reopen?.()) as Runtime;

    it('finds running, frozen and dead instances again', async ({ skip }) => {
      skip(bench.subject.reopen === undefined, 'its instances end with the server');
      const running = await bench.started();
      const frozen = await bench.started();
      await bench.subject.runtime.freeze(frozen, unhurried);
      const dead = await bench.started();
      await bench.subject.kill(dead);

      const later = await reopened();

      expect(await bench.observed(running, later)).toEqual({ is: 'running' });
      expect(await bench.observed(frozen, later)).toEqual({ is: 'frozen' });
      expect(await bench.observed(dead, later)).toMatchObject({ is: 'gone', files: true });
      expect(await listedInstances(later)).toEqual(await listedInstances(bench.subject.runtime));
      expect(await later.agent(running, unhurried)).toEqual(
        await bench.subject.runtime.agent(running, unhurried),
      );
      await later.thaw(frozen, null, unhurried);
      expect(await bench.subject.program.write(frozen, 'a', 'one')).toBe(true);
    });

    it('dials, captures and destroys what the first one started', async ({ skip }) => {
      skip(bench.subject.reopen === undefined, 'its instances end with the server');
      const instance = await bench.started();
      await bench.subject.program.write(instance, 'a', 'one');
      const port = await freePort();
      await bench.subject.program.listen?.(instance, port);

      const later = await reopened();

      const dialled = await later.dial(instance, port, unhurried);
      expect(dialled === null).toBe(bench.subject.program.listen === undefined);
      const checkpoint = await paused({ runtime: later, store: bench.subject.store }, instance);
      expect(await listedInstances(later)).toEqual([]);
      const elsewhere = newInstance();
      await startFrom({ runtime: later, store: bench.subject.store }, elsewhere, checkpoint);
      expect(await bench.subject.program.read(elsewhere, 'a')).toBe('one');
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
