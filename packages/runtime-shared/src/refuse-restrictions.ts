/** For runtimes that cannot restrict the network: throws for every policy except one that allows everything. */
import { type Network, TorporError } from '@torpor/protocol';

export function refuseRestrictions(runtime: string, { mode, allow, deny }: Network): void {
  if (mode !== 'none' && (allow ?? []).length === 0 && (deny ?? []).length === 0) return;
  throw new TorporError(
    'capability_unsupported',
    `The ${runtime} runtime cannot restrict the network of a sandbox.`,
  );
}
