/**
 * Makes a directory a shared mount, so that mounts below it are unmounted in all copies of the mount namespace at once.
 *
 * A new mount namespace begins with copies of all mounts, and a file system stays in use until its last copy is
 * unmounted. Where the host's mounts are private (systemd shares them, some other init systems do not), a namespace that
 * is made while one sandbox starts keeps the unmounted root of another sandbox in use for as long as it lives.
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

const TIMEOUT_MS = 10_000;

/** Does nothing when the directory lies on a shared mount already. May be repeated. */
export async function shareMounts(
  directory: string,
  signal: AbortSignal,
  namespace: MountNamespace = hostMountNamespace,
): Promise<void> {
  const at = await realpath(directory);
  const holding = holdingMount(parseMounts(namespace.mountinfo()), at);
  if (holding?.isShared === true) return;
  if (holding?.at !== at) await mount(['--bind', at, at], signal, namespace);
  await mount(['--make-shared', at], signal, namespace);
}

/** Undoes `shareMounts`. Mounts below the directory must be unmounted first. */
export async function unshareMounts(directory: string, signal: AbortSignal): Promise<void> {
  const at = await realpath(directory);
  if (holdingMount(parseMounts(hostMountNamespace.mountinfo()), at)?.at !== at) return;
  await programOutput('umount', [at], { signal, timeoutMs: TIMEOUT_MS });
}

async function mount(
  args: readonly string[],
  signal: AbortSignal,
  { launcher }: MountNamespace,
): Promise<void> {
  await programOutput('mount', args, { signal, timeoutMs: TIMEOUT_MS, launcher });
}

/** The mount that a path lies on. Of several mounts at one mount point the last is visible. */
function holdingMount(mounts: readonly Mount[], path: string): Mount | undefined {
  for (let directory = path; ; directory = dirname(directory)) {
    const found = mounts.findLast(({ at }) => at === directory);
    if (found !== undefined || directory === dirname(directory)) return found;
  }
}
