/** Tries out the store of a server, for `torpor doctor`. */
import { openObjectStore, probeObjectStore } from '@torpor/object-store';

/** A person waits for the answer. */
const LIMITS = { callMs: 10_000, stallMs: 10_000, minBytesPerSecond: 1 };

/** Writes, lists, reads and deletes one small object. Throws the error of the first step that failed. */
export async function probeStore(
  address: string,
  env: Readonly<Record<string, string | undefined>>,
  signal: AbortSignal,
): Promise<void> {
  await probeObjectStore(await openObjectStore(address, env, LIMITS), signal);
}
