/**
 * Whether a paused sandbox may stay in memory. Asked while its memory is being written, for the answer to the pause, and
 * again when the instance is to be kept.
 */
import type { Usage } from '@torpor/layers';
import { isUnassignedName } from '../container/container-setup.ts';
import type { Container } from '../runsc/runsc-container.ts';
import type { RuntimeContext } from '../runtime-context.ts';

/**
 * The largest upper layer that is copied. On two cores and an ordinary disk `cp` takes 50 ms for 1,000 small files and some 100 ms
 * for 64 MB, which is about what packing the memory of a small sandbox takes at the same time.
 */
const MAX_COPIED_ENTRIES = 1_000;
export const MAX_COPIED_BYTES = 64 * 1024 * 1024;

/** The memory of a sentry, on top of the memory of its processes. */
const SENTRY_BYTES = 32 * 1024 * 1024;

/** The share of the budget that an instance takes whose processes use this much memory. */
export function keptBytes(memoryBytes: number | undefined): number {
  return (memoryBytes ?? 0) + SENTRY_BYTES;
}

/** Why the instance cannot stay in memory whatever its files are; null when it can. */
export function whyNotWarm(
  {
    settings,
    serverTag,
    warmMemory,
    cannotContinue,
  }: Pick<RuntimeContext, 'settings' | 'serverTag' | 'warmMemory' | 'cannotContinue'>,
  { container, runsc }: { readonly container: Pick<Container, 'id'>; readonly runsc: string },
  memoryBytes: number | undefined,
): string | null {
  if (settings.warmKeepMs === 0) return 'no paused sandbox stays in memory (warmKeepMs is 0)';
  if (cannotContinue.has(runsc)) return 'its runsc cannot let a stopped sandbox go on';
  if (!isUnassignedName(serverTag, container.id)) return 'it was started by an earlier version';
  const bytes = keptBytes(memoryBytes);
  if (bytes > warmMemory.bytes)
    return `it takes ${megabytes(bytes)} of memory, and ${megabytes(warmMemory.bytes)} may be kept in all`;
  return null;
}

/** Why the upper layer is not copied; null when it is. */
export function whyNotCopied({ entries, bytes }: Usage, sharesBlocks: boolean): string | null {
  if (entries > MAX_COPIED_ENTRIES)
    return `it has changed ${entries} files and directories since its last cold start; at most ${MAX_COPIED_ENTRIES} are copied`;
  if (bytes > MAX_COPIED_BYTES && !sharesBlocks)
    return `it has written ${megabytes(bytes)} since its last cold start; at most ${megabytes(MAX_COPIED_BYTES)} are copied`;
  return null;
}

function megabytes(bytes: number): string {
  return `${Math.ceil(bytes / 1024 / 1024)} MB`;
}
