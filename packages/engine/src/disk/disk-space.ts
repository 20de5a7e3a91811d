/** How much space the disk of the checkpoints has, and which operations that allows. */
import { type DiskLevel, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Settings } from '../settings.ts';
import { withTimeout } from '../with-timeout.ts';
import type { ReserveState } from './reserve.ts';

export interface DiskSpace {
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** Numbers of free bytes; 0 for a threshold that is not used. */
export interface DiskThresholds {
  /** Below this the disk is reported as low. */
  readonly lowBytes: number;
  /** Below this creates, forks and snapshots are refused. */
  readonly refuseBytes: number;
}

/** With fewer free bytes than this the next write may fail. */
const FULL_BYTES = 512 * 1024;

type ThresholdSettings = Pick<
  Settings,
  'diskLowBytes' | 'diskLowPercent' | 'diskRefuseBytes' | 'diskRefusePercent'
>;

/** The smaller of a number of bytes and a share of the disk; a value of 0 is ignored. 0 when both are 0. */
export function boundOf(bytes: number, percent: number, totalBytes: number): number {
  const share = Math.floor((totalBytes * percent) / 100);
  return bytes > 0 && share > 0 ? Math.min(bytes, share) : Math.max(bytes, share);
}

export function thresholdsOf(settings: ThresholdSettings, totalBytes: number): DiskThresholds {
  const refuseBytes = boundOf(settings.diskRefuseBytes, settings.diskRefusePercent, totalBytes);
  const lowBytes = boundOf(settings.diskLowBytes, settings.diskLowPercent, totalBytes);
  return { lowBytes: Math.max(refuseBytes, lowBytes), refuseBytes };
}

/** A disk whose reserve was released is full, also while part of the released space is still free. */
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
 * The refusal of an operation that adds to the disk, or undefined when there is space. The caller asks before the
 * operation's transaction and throws inside it, so that a repeated request gets its first answer. When the disk does not
 * answer, nothing is refused: the operation itself finds out.
 */
export async function refusalForDiskSpace(ctx: Context): Promise<TorporError | undefined> {
  const { clock, settings, store, disk } = ctx;
  const space = await withTimeout(clock, settings.observeMs, 'Asking for disk space', () =>
    store.usage(),
  ).catch(() => undefined);
  if (space === undefined) return undefined;
  const thresholds = thresholdsOf(settings, space.totalBytes);
  const level = levelOf(space, thresholds, disk.state?.reserve);
  if (level === 'ok' || level === 'low') return undefined;
  const { freeBytes } = space;
  const neededBytes = Math.max(0, thresholds.refuseBytes - freeBytes);
  const why = level === 'full' ? 'is full' : 'is nearly full';
  return new TorporError(
    'storage_full',
    `The disk of the checkpoints ${why}; new sandboxes and checkpoints are refused.`,
    {
      hint: 'Kill sandboxes, delete checkpoints or make the disk larger. Pauses, resumes and kills still work.',
      details: { level, freeBytes, neededBytes, boundBytes: thresholds.refuseBytes },
    },
  );
}
