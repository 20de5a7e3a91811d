import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { failureOf } from '../../testing/failure-of.ts';
import { makeWorld, type World } from '../../testing/index.ts';
import { levelOf, thresholdsOf } from './disk-space.ts';

const CALLER = { org: 'org' };
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

describe('thresholds of free disk space', () => {
  const settings = {
    diskLowBytes: 10 * GIB,
    diskLowPercent: 10,
    diskRefuseBytes: 2 * GIB,
    diskRefusePercent: 3,
  };

  it.each([
    ['a large disk by bytes', 2_000 * GIB, settings, { lowBytes: 10 * GIB, refuseBytes: 2 * GIB }],
    ['a small disk by share', 10 * GIB, settings, { lowBytes: GIB, refuseBytes: Math.floor(0.3 * GIB) }],
    [
      'by share alone',
      2_000 * GIB,
      { ...settings, diskLowBytes: 0, diskRefuseBytes: 0 },
      { lowBytes: 200 * GIB, refuseBytes: 60 * GIB },
    ],
    [
      'by bytes alone',
      10 * GIB,
      { ...settings, diskLowPercent: 0, diskRefusePercent: 0 },
      { lowBytes: 10 * GIB, refuseBytes: 2 * GIB },
    ],
  ])('count %s (R113)', (_, total, given, thresholds) => {
    expect(thresholdsOf(given, total)).toEqual(thresholds);
  });

  it('make four levels; an incomplete reserve means that the disk is full', () => {
    const thresholds = { lowBytes: 100 * MIB, refuseBytes: 50 * MIB };
    const whole = { heldBytes: 8, wantedBytes: 8 };
    const level = (freeMib: number, reserve: typeof whole | undefined = whole) =>
      levelOf({ freeBytes: freeMib * MIB, totalBytes: GIB }, thresholds, reserve);
    expect([level(100), level(99), level(49), level(0)]).toEqual(['ok', 'low', 'refusing', 'full']);
    expect(level(500, { heldBytes: 7, wantedBytes: 8 })).toBe('full');
    expect(level(500, undefined)).toBe('ok');
  });
});

describe('a disk that fills up', () => {
  let world: World;
  beforeEach(async () => {
    world = await makeWorld('sqlite', {
      settings: {
        diskLowBytes: 100 * MIB,
        diskRefuseBytes: 50 * MIB,
        diskLowPercent: 0,
        diskRefusePercent: 0,
      },
    });
  });
  afterEach(() => world.dispose());
  const free = async (bytes: number) => {
    world.clock.advance(1);
    world.store.room = { freeBytes: bytes, totalBytes: GIB };
    await world.engine.checkDisk();
  };
  const announced = () =>
    world.reported.filter(({ what }) => what.startsWith('disk ')).map(({ facts }) => facts['event']);

  it('is reported once at each threshold, and again when there is space (R115)', async () => {
    await free(99 * MIB);
    await free(98 * MIB);
    expect(announced()).toEqual(['disk.low']);
    expect(world.engine.disk()).toMatchObject({ level: 'low', freeBytes: 98 * MIB, lowBytes: 100 * MIB });
    await free(10 * MIB);
    await free(GIB);
    expect(announced()).toEqual(['disk.low', 'disk.refusing', 'disk.ok']);
    expect(await world.engine.diskEvents()).toMatchObject([
      { type: 'disk.ok', previousLevel: 'refusing' },
      { type: 'disk.refusing', previousLevel: 'low', freeBytes: 10 * MIB },
      { type: 'disk.low', previousLevel: 'ok', freeBytes: 99 * MIB, totalBytes: GIB },
    ]);
  });

  it('is not reported again by a server that starts with that level (R115)', async () => {
    await free(99 * MIB);
    await world.another();
    expect(announced()).toEqual(['disk.low']);
    expect(await world.engine.diskEvents()).toHaveLength(1);
  });

  it('refuses creates, forks and snapshots before it refuses a pause (R112)', async () => {
    const { id } = (await world.engine.create(CALLER, {})).sandbox;
    const other = (await world.engine.create(CALLER, {})).sandbox;
    await free(40 * MIB);

    const refusal = {
      code: 'storage_full',
      details: { level: 'refusing', freeBytes: 40 * MIB, neededBytes: 10 * MIB, boundBytes: 50 * MIB },
    };
    expect(await failureOf(world.engine.create(CALLER, {}))).toMatchObject(refusal);
    expect(await failureOf(world.engine.fork(CALLER, id, {}))).toMatchObject(refusal);
    expect(await failureOf(world.engine.snapshot(CALLER, id, {}))).toMatchObject(refusal);
    expect((await world.engine.list({ org: 'org' }, '', 10)).items).toHaveLength(2);

    await world.engine.pause(CALLER, id);
    await world.engine.resume(CALLER, id);
    expect((await world.engine.get('org', id)).state).toBe('running');
    expect((await world.engine.kill(CALLER, other.id)).sandbox.state).toBe('killed');
    await free(60 * MIB);
    await world.engine.create(CALLER, {});
  });

  it('repeats the answer of an earlier create with the same idempotency key', async () => {
    const caller = { ...CALLER, idempotencyKey: 'key' };
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await free(1 * MIB);
    expect((await world.engine.create(caller, {})).sandbox.id).toBe(id);
  });
});
