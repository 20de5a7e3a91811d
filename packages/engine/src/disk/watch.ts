/** Looks at the disk: keeps the reserve, and says when the level changes. It never deletes anything. */
import type { DiskLevel } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { within } from '../within.ts';
import type { DiskReserve, ReserveState } from './reserve.ts';
import { boundsOf, type DiskBounds, levelOf, type Room } from './room.ts';

export interface DiskState extends Room, DiskBounds {
  readonly level: DiskLevel;
  readonly reserve: ReserveState | undefined;
}

/** What the last look found. */
export class DiskWatch {
  private readonly file: DiskReserve | undefined;
  private seen: DiskState | undefined;
  private last: ReserveState | undefined;

  constructor(file: DiskReserve | undefined) {
    this.file = file;
  }

  get state(): DiskState | undefined {
    return this.seen;
  }

  get reserve(): ReserveState | undefined {
    return this.last;
  }

  async look(ctx: Context): Promise<DiskState> {
    const { clock, settings, store } = ctx;
    this.last = await this.file?.refill();
    const room = await within(clock, settings.observeMs, 'Asking for room', () => store.usage());
    const bounds = boundsOf(settings, room.totalBytes);
    const level = levelOf(room, bounds, this.last);
    const before = this.seen?.level ?? 'ok';
    const now = { ...room, ...bounds, level, reserve: this.last };
    this.seen = now;
    if (level !== before) {
      const severity = level === 'ok' ? 'info' : 'warn';
      ctx.report(`disk ${level}`, { event: `disk.${level}`, severity, before, ...room, ...bounds });
    }
    return now;
  }
}
