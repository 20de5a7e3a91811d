/** For runtimes without an egress: throws for every policy except one that allows everything and uses no secrets. */
import { type Network, TorporError } from '@torpor/protocol';

export function refuseRestrictions(runtime: string, { mode, allow, deny, secrets = [] }: Network): void {
  if (secrets.length > 0) {
    throw new TorporError(
      'capability_unsupported',
      `The ${runtime} runtime has no egress that could put secrets into requests.`,
      { hint: 'Use the gVisor runtime.' },
    );
  }
  if (mode !== 'none' && (allow ?? []).length === 0 && (deny ?? []).length === 0) return;
  throw new TorporError(
    'capability_unsupported',
    `The ${runtime} runtime cannot restrict the network of a sandbox.`,
  );
}
