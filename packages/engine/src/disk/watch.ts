/** Looks at the disk: keeps the reserve, and announces each change of the level. It never deletes anything. */
import type { DiskLevel } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { within } from '../within.ts';
import { type DiskSpace, type DiskThresholds, levelOf, thresholdsOf } from './disk-space.ts';
import { deleteOldDiskEvents, insertDiskEvent, listDiskEvents } from './events.ts';
import type { DiskReserve, ReserveState } from './reserve.ts';

export interface DiskState extends DiskSpace, DiskThresholds {
  readonly level: DiskLevel;
  readonly reserve: ReserveState | undefined;
}

export class DiskWatch {
  readonly #file: DiskReserve | undefined;
  #seen: DiskState | undefined;
  /** What the last event says; undefined until the database was asked. */
  #announced: DiskLevel | undefined;

  constructor(file: DiskReserve | undefined) {
    this.#file = file;
  }

  /** What the last look found. */
  get state(): DiskState | undefined {
    return this.#seen;
  }

  async check(ctx: Context): Promise<DiskState> {
    const { clock, settings, store } = ctx;
    const reserve = await this.#file?.refill();
    const room = await within(clock, settings.observeMs, 'Asking for room', () => store.usage());
    const bounds = thresholdsOf(settings, room.totalBytes);
    const now = { ...room, ...bounds, level: levelOf(room, bounds, reserve), reserve };
    this.#seen = now;
    // A database that cannot be written leaves it unannounced, and the next look tries again.
    await this.#announce(ctx, now).catch((error: unknown) =>
      ctx.report('announcing the level of the disk failed', { error }),
    );
    return now;
  }

  async #announce(ctx: Context, { level, freeBytes, totalBytes, ...rest }: DiskState): Promise<void> {
    this.#announced ??= (await lastLevel(ctx)) ?? 'ok';
    const previousLevel = this.#announced;
    if (level === previousLevel) return;
    const about = { previousLevel, freeBytes, totalBytes };
    await ctx.db.transaction(async (tx) => {
      await insertDiskEvent(tx, level, { id: ctx.ids.next('evt'), at: ctx.clock.now(), ...about });
      await deleteOldDiskEvents(tx);
    });
    this.#announced = level;
    const severity = level === 'ok' ? 'info' : 'warn';
    ctx.report(`disk ${level}`, { event: `disk.${level}`, severity, ...about, ...rest });
  }
}

async function lastLevel(ctx: Context): Promise<DiskLevel | undefined> {
  const [last] = await listDiskEvents(ctx.db);
  return last?.type.slice('disk.'.length) as DiskLevel | undefined;
}
