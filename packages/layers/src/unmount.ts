/** Unmounts a directory, and waits a little for processes that are about to release it. */
import type { Clock } from '@torpor/engine';
import type { MountNamespace } from '@torpor/host';
import { ProgramFailure, parseMounts, programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { Unmounted } from './layers.ts';
import { placeOf, topmostAt } from './overlay-mount.ts';

/** A sandbox that was just killed holds its root for a moment longer. */
const PATIENCE_MS = 2000;
const PAUSE_MS = 50;

/** Removes all mounts at this directory. */
export async function unmountAt(
  at: string,
  whenBusy: 'refuse' | 'detach',
  clock: Clock,
  place: MountNamespace,
): Promise<Unmounted> {
  const find = async () => topmostAt(await placeOf(at), parseMounts(place.mountinfo()));
  const began = clock.monotonic();
  let result: Unmounted = 'absent';
  for (let mount = await find(); mount !== undefined; mount = await find()) {
    const isLastResort = whenBusy === 'detach' && clock.monotonic() - began >= PATIENCE_MS;
    const refusal = await umount(mount.at, isLastResort ? ['-l'] : [], place);
    if (refusal === undefined) {
      if (isLastResort) result = 'detached';
      else if (result === 'absent') result = 'unmounted';
    } else if (clock.monotonic() - began < PATIENCE_MS) {
      await clock.sleep(PAUSE_MS);
    } else if (isLastResort || whenBusy === 'refuse') {
      throw new TorporError('conflict', `The mount at ${at} is busy.`, { details: { at }, cause: refusal });
    }
  }
  return result;
}

/** The failure of `umount`. The caller looks at the mount table again, because a mount that has just gone fails the same. */
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
