/** The limits of a sandbox that sets none: enough for builds, and never the whole host. */
import { totalmem } from 'node:os';
import type { Resources } from '@torpor/protocol';

const MIB = 1024 * 1024;
const MEMORY_MB = 4_096;
const DISK_MB = 10_240;
const PROCESSES = 2_048;
const DISK_GRACE_BYTES = 256 * MIB;
/** The grace is at most this share of the limit. */
const DISK_GRACE_SHARE = 1 / 4;

export type Limits = Resources & {
  readonly memoryMb: number;
  readonly diskMb: number;
  readonly processes: number;
};

export function withDefaults(resources: Resources): Limits {
  const half = Math.floor(totalmem() / MIB / 2);
  return {
    ...resources,
    memoryMb: resources.memoryMb ?? Math.min(MEMORY_MB, half),
    diskMb: resources.diskMb ?? DISK_MB,
    processes: resources.processes ?? PROCESSES,
  };
}

/** A sandbox whose sealed layers have used up its disk limit may still write this much, so that it can clean up. */
export function diskGraceBytes(limitBytes: number): number {
  return Math.min(DISK_GRACE_BYTES, limitBytes * DISK_GRACE_SHARE);
}
