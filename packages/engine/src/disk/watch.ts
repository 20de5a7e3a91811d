/** Checks the disk: refills the reserve, and records each change of the level. It never deletes anything. */
import type { DiskLevel } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { withTimeout } from '../with-timeout.ts';
import { type DiskSpace, type DiskThresholds, levelOf, thresholdsOf } from './disk-space.ts';
import { deleteOldDiskEvents, insertDiskEvent, listDiskEvents } from './events.ts';
import type { DiskReserve, ReserveState } from './reserve.ts';

export interface DiskState extends DiskSpace, DiskThresholds {
  readonly level: DiskLevel;
  readonly reserve: ReserveState | undefined;
}

export class DiskWatch {
  readonly #reserve: DiskReserve | undefined;
  #state: DiskState | undefined;
  /** The level of the last recorded event; undefined until it was read from the database. */
  #recordedLevel: DiskLevel | undefined;

  constructor(reserve: DiskReserve | undefined) {
    this.#reserve = reserve;
  }

  /** What the last check found. */
  get state(): DiskState | undefined {
    return this.#state;
  }

  async check(ctx: Context): Promise<DiskState> {
    const { clock, settings, store } = ctx;
    const reserve = await this.#reserve?.refill();
    const space = await withTimeout(clock, settings.observeMs, 'Asking for disk space', () => store.usage());
    const thresholds = thresholdsOf(settings, space.totalBytes);
    const now = { ...space, ...thresholds, level: levelOf(space, thresholds, reserve), reserve };
    this.#state = now;
    // When the database cannot be written, the next check tries again.
    await this.#recordLevel(ctx, now).catch((error: unknown) =>
      ctx.report('announcing the level of the disk failed', { error }),
    );
    return now;
  }

  async #recordLevel(ctx: Context, { level, freeBytes, totalBytes, ...rest }: DiskState): Promise<void> {
    this.#recordedLevel ??= (await lastLevel(ctx)) ?? 'ok';
    const previousLevel = this.#recordedLevel;
    if (level === previousLevel) return;
    const about = { previousLevel, freeBytes, totalBytes };
    await ctx.db.transaction(async (tx) => {
      await insertDiskEvent(tx, level, { id: ctx.ids.next('evt'), at: ctx.clock.now(), ...about });
      await deleteOldDiskEvents(tx);
    });
    this.#recordedLevel = level;
    const severity = level === 'ok' ? 'info' : 'warn';
    ctx.report(`disk ${level}`, { event: `disk.${level}`, severity, ...about, ...rest });
  }
}

async function lastLevel(ctx: Context): Promise<DiskLevel | undefined> {
  const [last] = await listDiskEvents(ctx.db);
  return last?.type.slice('disk.'.length) as DiskLevel | undefined;
}
