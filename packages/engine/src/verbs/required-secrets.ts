/** Refuses a network that names secrets which the organisation does not have. */
import { type Network, nameOfUse, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';

/** A secret that is deleted later is missing from requests, and nothing else fails. */
export async function requireSecrets(
  { secrets }: Pick<Context, 'secrets'>,
  org: string,
  network: Network | undefined,
): Promise<void> {
  const names = (network?.secrets ?? []).map(nameOfUse);
  if (names.length === 0) return;
  const missing = (await secrets?.missing(org, names)) ?? names;
  if (missing.length === 0) return;
  throw new TorporError('not_found', `There is no secret ${missing.slice(0, 5).join(', ')}.`, {
    hint: 'Set it first: torpor secret set.',
    details: { secrets: missing },
  });
}
