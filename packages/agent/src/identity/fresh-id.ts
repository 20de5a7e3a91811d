/**
 * Ids that differ between two starts from one memory image. Two sandboxes can start from the same memory. Then every
 * random generator inside the process has the same state in both; only the kernel's differs.
 */
import { randomUUID } from 'node:crypto';
import { openSync, readSync } from 'node:fs';

const BYTES = 16;

/** `source` is an open descriptor of the kernel's generator. Without one, Node's generator is used. */
export function freshIds(source: number | undefined): () => string {
  if (source === undefined) return randomUUID;
  return () => {
    const bytes = Buffer.alloc(BYTES);
    if (readSync(source, bytes, 0, BYTES, null) !== BYTES) return randomUUID();
    return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  };
}

/** Opens the kernel's generator. Undefined where there is no such device. */
export function kernelRandomness(): number | undefined {
  try {
    return openSync('/dev/urandom', 'r');
  } catch {
    return undefined;
  }
}
