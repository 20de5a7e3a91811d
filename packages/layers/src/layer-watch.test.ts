import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { systemClock } from '@torpor/engine';
import { ManualClock } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import type { LayerId } from './layer-id.ts';
import { type FreeSpace, freeSpaceOf, LayerWatch } from './layer-watch.ts';
import type { Usage } from './layers.ts';

const A: LayerId = 'lay_aaaaaaaaaaaaaaaaaaaa';
const B: LayerId = 'lay_bbbbbbbbbbbbbbbbbbbb';
const TICK_MS = 100;

describe('the watch over layers', () => {
  let clock: ManualClock;
  let room: FreeSpace;
  let usages: Map<LayerId, Usage | Error>;
  let measured: LayerId[];
  let passed: LayerId[];
  let failures: unknown[];
  let refusePassed: boolean;
  let watch: LayerWatch;

  beforeEach(() => {
    clock = new ManualClock();
    room = { bytes: 1_000_000, entries: 1_000 };
    usages = new Map();
    [measured, passed, failures, refusePassed] = [[], [], [], false];
    watch = new LayerWatch({
      clock,
      room: async () => room,
      usage: async (id) => {
        measured.push(id);
        const usage = usages.get(id) ?? { bytes: 0, entries: 1 };
        if (usage instanceof Error) throw usage;
        return usage;
      },
      passed: async (id) => {
        passed.push(id);
        if (refusePassed) throw new Error('not now');
      },
      failed: (_, thrown) => failures.push(thrown),
    });
  });
  afterEach(() => watch.stop());

  const write = (id: LayerId, bytes: number, entries = 1) => {
    usages.set(id, { bytes, entries });
    room = { bytes: room.bytes - bytes, entries: room.entries - entries };
  };
  const ticks = async (count = 1) => {
    for (let i = 0; i < count; i++) {
      await clock.untilAsleepFor(TICK_MS);
      clock.advance(TICK_MS);
    }
    await clock.untilAsleepFor(TICK_MS);
    await setImmediate();
  };

  it('measures a layer once and then leaves it alone while nothing is written', async () => {
    watch.watch(A, 100_000);
    await ticks(20);
    expect(measured).toEqual([A]);
    expect(passed).toEqual([]);
  });

  it('measures again when the disk has lost as much space as the layer had left, and reports once', async () => {
    watch.watch(A, 100_000);
    await ticks();
    write(A, 90_000);
    await ticks();
    expect(measured).toEqual([A]);
    write(A, 150_000);
    await ticks(5);
    expect(measured).toEqual([A, A]);
    expect(passed).toEqual([A]);
  });

  it('does not report a layer for what other layers write', async () => {
    watch.watch(A, 100_000);
    await ticks();
    room = { ...room, bytes: 0 };
    await ticks();
    expect(measured).toEqual([A, A]);
    expect(passed).toEqual([]);
  });

  it('measures every layer regularly, because space that others freed can hide growth', async () => {
    watch.watch(A, 100_000);
    await ticks();
    usages.set(A, { bytes: 150_000, entries: 1 });
    await ticks(290);
    expect(passed).toEqual([]);
    await ticks(20);
    expect(passed).toEqual([A]);
  });

  it('counts empty files', async () => {
    watch.watch(A, 100_000);
    await ticks();
    write(A, 0, 50);
    await ticks();
    expect(passed).toEqual([A]);
  });

  it('measures layers that grew before first', async () => {
    watch.watch(A, 100_000);
    watch.watch(B, 100_000);
    await ticks();
    write(B, 99_000);
    room = { ...room, bytes: 0 };
    await ticks();
    measured = [];
    room = { ...room, bytes: -1_000_000 };
    await ticks();
    expect(measured).toEqual([B, A]);
  });

  it('repeats a measurement or a report that failed', async () => {
    usages.set(A, new Error('no answer'));
    watch.watch(A, 100_000);
    await ticks(5);
    expect(failures).toHaveLength(1);
    write(A, 150_000);
    refusePassed = true;
    await ticks(10);
    expect(passed).toEqual([A]);
    refusePassed = false;
    await ticks(30);
    expect(passed).toEqual([A, A]);
    expect(failures.map(String)).toEqual(['Error: no answer', 'Error: not now']);
  });

  it('forgets a layer that is unwatched, and stops when none is left', async () => {
    watch.watch(A, 100_000);
    await ticks();
    watch.unwatch(A);
    clock.advance(TICK_MS);
    await setImmediate();
    expect(clock.advanceToNext()).toBe(false);
    watch.watch(B, 100_000);
    await ticks();
    expect(measured).toEqual([A, B]);
  });

  it.skipIf(REFUSAL !== undefined)('notices a real program that fills its layer', async () => {
    const world = await makeLayerWorld();
    const upper = await world.layers.create();
    const noticed = Promise.withResolvers<Usage>();
    const real = new LayerWatch({
      clock: systemClock,
      room: () => freeSpaceOf(world.root),
      usage: (id, signal) => world.layers.usage(id, signal),
      passed: async (_, usage) => noticed.resolve(usage),
      failed: (_, thrown) => noticed.reject(thrown),
    });
    real.watch(upper, 4 << 20);
    const file = join(world.layers.path(upper), 'big');
    const filler = spawn('sh', [
      '-c',
      'while :; do head -c 1000000 /dev/zero; sleep 0.02; done > "$0"',
      file,
    ]);
    try {
      const usage = await noticed.promise;
      expect(usage.bytes).toBeGreaterThan(4 << 20);
    } finally {
      filler.kill('SIGKILL');
      await once(filler, 'close');
      await real.stop();
      execFileSync('sync', ['-f', world.root]);
      await world.dispose();
    }
  });
});
