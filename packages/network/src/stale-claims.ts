/** Removes namespaces and claims of servers and tests whose data directory is gone. */
import type { AddressBlocks, Claim } from './address-blocks.ts';
import { namespaceNames, removeNamespaces } from './namespaces.ts';
import { removeRouter } from './router.ts';
import { firstSlot } from './slots.ts';

export function routerName(tag: string): string {
  return `${tag}-router`;
}

export async function sweepStaleClaims(addresses: AddressBlocks): Promise<void> {
  for (const claim of await addresses.claims()) {
    // Another server may remove the same claim. A failed removal is repeated at the next start.
    if (claim.isStale) await remove(addresses, claim).catch(() => {});
  }
}

async function remove(addresses: AddressBlocks, { block, tag }: Claim): Promise<void> {
  await removeNamespaces((await namespaceNames(`${tag}-`)).filter((name) => name !== routerName(tag)));
  await removeRouter({ netns: routerName(tag), uplink: firstSlot(block) });
  await addresses.release(block);
}
