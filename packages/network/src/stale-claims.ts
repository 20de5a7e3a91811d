/** Takes away what servers and tests have left in the kernel whose data directory is no more. */
import type { AddressBlocks, Claim } from './address-blocks.ts';
import { namespaceNames, removeNamespaces } from './namespaces.ts';
import { removeRouter } from './router.ts';
import { firstSlot } from './slots.ts';

export function routerName(tag: string): string {
  return `${tag}-router`;
}

export async function sweepStaleClaims(addresses: AddressBlocks): Promise<void> {
  for (const claim of await addresses.claims()) {
    // Another server may be at it too. What is not taken away now is found again at the next start.
    if (claim.isStale) await remove(addresses, claim).catch(() => {});
  }
}

async function remove(addresses: AddressBlocks, { block, tag }: Claim): Promise<void> {
  await removeNamespaces((await namespaceNames(`${tag}-`)).filter((name) => name !== routerName(tag)));
  await removeRouter({ netns: routerName(tag), uplink: firstSlot(block) });
  await addresses.release(block);
}
