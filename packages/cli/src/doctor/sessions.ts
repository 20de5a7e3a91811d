/** Sessions whose sandbox died: what is being healed, and how long that takes. */
import type { Torpor } from '@torpor/sdk';
import type { Check } from './check.ts';

export async function checkSessions(torpor: Torpor): Promise<Check[]> {
  // The key of a user may not look at the whole server; then there is nothing to say.
  const healing = await torpor.sessions.healing().catch(() => undefined);
  if (healing === undefined) return [];
  const { due, leftovers, perRound, everyMs } = healing;
  const what = 'Sessions';
  if (due === 0 && leftovers === 0) return [{ is: 'good', what, detail: 'none is bound to a dead sandbox' }];
  const seconds = Math.ceil((Math.ceil(due / perRound) * everyMs) / 1_000);
  const parts = [
    ...(due === 0 ? [] : [`${due} bound to a dead sandbox are being healed, within about ${seconds} s`]),
    ...(leftovers === 0 ? [] : [`${leftovers} replaced sandboxes are still to be ended`]),
  ];
  return [{ is: 'note', what, detail: parts.join('; ') }];
}
