import { mkdtemp, open, rm, stat, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate, openSqlite } from '@torpor/database';
import { ALL_MIGRATIONS } from '@torpor/server/migrations';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { canMount, withSmallDisk } from '../../testing/mounts.ts';
import { DiskReserve } from './reserve.ts';

const MIB = 1024 ** 2;

describe.skipIf(!canMount())('the disk reserve', () => {
  let directory: string;
  let disk: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-reserve-'));
    disk = join(directory, 'disk');
  });
  afterEach(() => rm(directory, { recursive: true }));

  async function fillUp(): Promise<void> {
    const file = await open(join(disk, 'ballast'), 'a');
    while (
      await file.write(Buffer.alloc(4_096)).then(
        ({ bytesWritten }) => bytesWritten === 4_096,
        () => false,
      )
    ) {
      // Until nothing more fits.
    }
    await file.close();
  }

  const free = async () => {
    const { bavail, bsize } = await statfs(disk);
    return bavail * bsize;
  };

  it('occupies real blocks, and no more than a quarter of a small disk (R113)', () =>
    withSmallDisk(disk, 64 * 1024, async () => {
      const reserve = await DiskReserve.open(join(disk, 'reserve'), 32 * MIB);
      expect(await reserve.refill()).toEqual({ heldBytes: 16 * MIB, wantedBytes: 16 * MIB });
      expect((await stat(join(disk, 'reserve'))).blocks * 512).toBe(16 * MIB);
      expect(await free()).toBeLessThanOrEqual(48 * MIB);
    }));

  it('releases one step at a time, and grows again when there is space, also after a crash (R112)', () =>
    withSmallDisk(disk, 64 * 1024, async () => {
      const reserve = await DiskReserve.open(join(disk, 'reserve'), 8 * MIB);
      await reserve.refill();
      await fillUp();
      expect(await free()).toBe(0);
      expect(await reserve.releaseStep()).toBe(true);
      const given = await free();
      expect(given).toBeGreaterThan(0);
      expect(given).toBeLessThanOrEqual(MIB);

      const after = await DiskReserve.open(join(disk, 'reserve'), 8 * MIB);
      expect((await after.refill()).heldBytes).toBeLessThan(8 * MIB);
      await after.releaseForStart();
      expect(await free()).toBeGreaterThanOrEqual(4 * MIB);
      await rm(join(disk, 'ballast'));
      expect(await after.refill()).toEqual({ heldBytes: 8 * MIB, wantedBytes: 8 * MIB });
    }));

  it('releases nothing when it is switched off or used up', () =>
    withSmallDisk(disk, 64 * 1024, async () => {
      const off = await DiskReserve.open(join(disk, 'reserve'), 0);
      expect(await off.refill()).toEqual({ heldBytes: 0, wantedBytes: 0 });
      expect(await off.releaseStep()).toBe(false);
    }));

  it('lets SQLite open and commit while no byte of the disk is free (R112)', () =>
    withSmallDisk(disk, 32 * 1024, async () => {
      const path = join(disk, 'torpor.db');
      const reserve = await DiskReserve.open(join(disk, 'reserve'), 8 * MIB);
      await reserve.refill();
      const makeRoom = () => reserve.releaseStep();
      const first = await openSqlite({ path, makeRoom });
      await migrate(first, ALL_MIGRATIONS);
      await first.close();
      await fillUp();
      await expect(openSqlite({ path })).rejects.toMatchObject({ code: 'storage_full' });

      const db = await openSqlite({ path, makeRoom });
      for (let i = 0; i < 3; i++) {
        await fillUp();
        await db.transaction((tx) =>
          tx.query("INSERT INTO home (one, id) VALUES (1, 'x') ON CONFLICT (one) DO UPDATE SET id = 'y'"),
        );
      }
      expect(await db.query('SELECT id FROM home')).toEqual([{ id: 'y' }]);
      await db.close();
    }));
});
