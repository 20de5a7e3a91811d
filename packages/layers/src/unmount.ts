/** Unmounts a directory. Waits up to two seconds for processes that are about to release the mount. */
import type { Clock } from '@torpor/engine';
import type { MountNamespace } from '@torpor/host';
import { ProgramFailure, parseMounts, programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { Unmounted } from './layers.ts';
import { realPathOf, topmostAt } from './overlay-mount.ts';

/** A sandbox that was just killed holds its root a moment longer. */
const BUSY_WAIT_MS = 2000;
const RETRY_EVERY_MS = 50;

/** Removes all mounts at this directory. */
export async function unmountAt(
  at: string,
  whenBusy: 'refuse' | 'detach',
  clock: Clock,
  mounts: MountNamespace,
): Promise<Unmounted> {
  const find = async () => topmostAt(await realPathOf(at), parseMounts(mounts.mountinfo()));
  const began = clock.monotonic();
  let result: Unmounted = 'absent';
  for (let mount = await find(); mount !== undefined; mount = await find()) {
    const isLastResort = whenBusy === 'detach' && clock.monotonic() - began >= BUSY_WAIT_MS;
    const refusal = await umount(mount.at, isLastResort ? ['-l'] : [], mounts);
    if (refusal === undefined) {
      if (isLastResort) result = 'detached';
      else if (result === 'absent') result = 'unmounted';
    } else if (clock.monotonic() - began < BUSY_WAIT_MS) {
      await clock.sleep(RETRY_EVERY_MS);
    } else if (isLastResort || whenBusy === 'refuse') {
      throw new TorporError('conflict', `The mount at ${at} is busy.`, { details: { at }, cause: refusal });
    }
  }
  return result;
}

/** Resolves to the failure of `umount`. The caller reads the mount table again: `umount` also fails for a mount that is gone. */
async function umount(
  at: string,
  options: readonly string[],
  { launcher }: MountNamespace,
): Promise<ProgramFailure | undefined> {
  try {
    await programOutput('umount', ['-i', '-n', ...options, at], { launcher });
    return undefined;
  } catch (thrown) {
    if (thrown instanceof ProgramFailure) return thrown;
    throw thrown;
  }
}
