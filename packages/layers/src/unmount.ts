/** Taking a mount away, with patience for whoever is just letting go of it. */
import type { Clock } from '@torpor/engine';
import type { MountNamespace } from '@torpor/host';
import { parseMounts } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { Unmounted } from './layers.ts';
import { placeOf, topmostAt } from './overlay-mount.ts';
import { ProgramFailure, run } from './program.ts';

/** A sandbox that was just killed holds its root for a moment. */
const PATIENCE_MS = 2000;
const PAUSE_MS = 50;

/** Several mounts at one place are all taken away. */
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

/** Why it was refused. It says the same when the mount has just gone; whoever asks looks again. */
async function umount(
  at: string,
  options: readonly string[],
  { launcher }: MountNamespace,
): Promise<ProgramFailure | undefined> {
  try {
    await run('umount', ['-i', '-n', ...options, at], { launcher });
    return undefined;
  } catch (thrown) {
    if (thrown instanceof ProgramFailure) return thrown;
    throw thrown;
  }
}
