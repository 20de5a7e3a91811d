/**
 * Mounts that come and go in one directory, for every mount namespace that was copied meanwhile.
 *
 * A new mount namespace begins as a copy, and a file system is not let go before its last copy is
 * unmounted. Where the machine's mounts are private (as under some first processes; systemd shares them), a
 * copy made while one sandbox starts keeps the unmounted root of another for as long as it lives. Mounts below a
 * shared mount are unmounted in all copies at once.
 */
import { realpath } from 'node:fs/promises';
import { dirname } from 'node:path';
import {
  hostMountNamespace,
  type Mount,
  type MountNamespace,
  parseMounts,
  programOutput,
} from '@torpor/host';

const BOUND_MS = 10_000;

/** Makes a directory such a place; nothing to do where it is in one already. May be repeated. */
export async function shareMounts(
  directory: string,
  signal: AbortSignal,
  place: MountNamespace = hostMountNamespace,
): Promise<void> {
  const at = await realpath(directory);
  const holding = holdingMount(parseMounts(place.mountinfo()), at);
  if (holding?.isShared === true) return;
  if (holding?.at !== at) await mount(['--bind', at, at], signal, place);
  await mount(['--make-shared', at], signal, place);
}

/** Undoes `shareMounts`. What is still mounted below must be unmounted first. */
export async function unshareMounts(directory: string, signal: AbortSignal): Promise<void> {
  const at = await realpath(directory);
  if (holdingMount(parseMounts(hostMountNamespace.mountinfo()), at)?.at !== at) return;
  await programOutput('umount', [at], { signal, timeoutMs: BOUND_MS });
}

async function mount(
  args: readonly string[],
  signal: AbortSignal,
  { launcher }: MountNamespace,
): Promise<void> {
  await programOutput('mount', args, { signal, timeoutMs: BOUND_MS, launcher });
}

/** Later mounts cover earlier ones at the same place, so the last that fits is the one that is seen. */
function holdingMount(mounts: readonly Mount[], path: string): Mount | undefined {
  for (let directory = path; ; directory = dirname(directory)) {
    const found = mounts.findLast(({ at }) => at === directory);
    if (found !== undefined || directory === dirname(directory)) return found;
  }
}
