/** How much room the disk of the checkpoints has, and what that allows. */
import { type DiskLevel, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Settings } from '../settings.ts';
import { within } from '../within.ts';
import type { ReserveState } from './reserve.ts';

export interface DiskSpace {
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** Below each of these many free bytes something else happens; 0 for a bound that is not used. */
export interface DiskThresholds {
  /** It is announced. */
  readonly lowBytes: number;
  /** Creates, forks and snapshots are refused. */
  readonly refuseBytes: number;
}

/** With less than this free the next write may fail. */
const FULL_BYTES = 512 * 1024;

type ThresholdSettings = Pick<
  Settings,
  'diskLowBytes' | 'diskLowPercent' | 'diskRefuseBytes' | 'diskRefusePercent'
>;

/** A bound is the smaller of its bytes and its share of the disk; one that is 0 does not count. */
export function thresholdsOf(settings: ThresholdSettings, totalBytes: number): DiskThresholds {
  const bound = (bytes: number, percent: number) => {
    const share = Math.floor((totalBytes * percent) / 100);
    return bytes > 0 && share > 0 ? Math.min(bytes, share) : Math.max(bytes, share);
  };
  const refuseBytes = bound(settings.diskRefuseBytes, settings.diskRefusePercent);
  return {
    lowBytes: Math.max(refuseBytes, bound(settings.diskLowBytes, settings.diskLowPercent)),
    refuseBytes,
  };
}

/** A disk whose reserve had to be given up is full, whatever of the reserve is free at this moment. */
export function levelOf(
  { freeBytes }: DiskSpace,
  { lowBytes, refuseBytes }: DiskThresholds,
  reserve: ReserveState | undefined,
): DiskLevel {
  if (freeBytes < FULL_BYTES || (reserve !== undefined && reserve.heldBytes < reserve.wantedBytes))
    return 'full';
  if (freeBytes < refuseBytes) return 'refusing';
  return freeBytes < lowBytes ? 'low' : 'ok';
}

/**
 * The refusal that an operation which adds to the disk gets, or undefined when there is room. Asked before the
 * operation's transaction and thrown inside it, so that a repeated request gets its first answer. A disk that cannot
 * be asked refuses nothing: the operation itself finds out.
 */
export async function refusalForDiskSpace(ctx: Context): Promise<TorporError | undefined> {
  const { clock, settings, store, disk } = ctx;
  const room = await within(clock, settings.observeMs, 'Asking for room', () => store.usage()).catch(
    () => undefined,
  );
  if (room === undefined) return undefined;
  const bounds = thresholdsOf(settings, room.totalBytes);
  const level = levelOf(room, bounds, disk.state?.reserve);
  if (level === 'ok' || level === 'low') return undefined;
  const { freeBytes } = room;
  const neededBytes = Math.max(0, bounds.refuseBytes - freeBytes);
  const why = level === 'full' ? 'is full' : 'is nearly full';
  return new TorporError('storage_full', `The disk of the checkpoints ${why}; nothing new is begun on it.`, {
    hint: 'Kill sandboxes, delete checkpoints or make the disk larger. Pauses, resumes and kills still work.',
    details: { level, freeBytes, neededBytes, boundBytes: bounds.refuseBytes },
  });
}
