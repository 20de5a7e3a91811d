/**
 * Ids that differ between two wakings of one image. A sandbox can be woken twice from the same memory, and
 * then the state of every generator inside the process is the same in both; only the kernel's is not.
 */
import { randomUUID } from 'node:crypto';
import { openSync, readSync } from 'node:fs';

const BYTES = 16;

/** `source` is the kernel's generator, opened; without one Node's own has to do. */
export function freshIds(source: number | undefined): () => string {
  if (source === undefined) return randomUUID;
  return () => {
    const bytes = Buffer.alloc(BYTES);
    if (readSync(source, bytes, 0, BYTES, null) !== BYTES) return randomUUID();
    return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  };
}

/** Opened once, before rights are given up. Undefined where there is no such device. */
export function kernelRandomness(): number | undefined {
  try {
    return openSync('/dev/urandom', 'r');
  } catch {
    return undefined;
  }
}
