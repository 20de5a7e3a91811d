/** The newest events of the organisation, for the overview and its charts. */
import { signal } from '@preact/signals';
import type { EventView } from '@torpor/sdk';
import { torpor } from '../shell/session.ts';

/** Newest first. Undefined until the first answer. */
export const recentEvents = signal<readonly EventView[] | undefined>(undefined);

/** Whether there are no earlier events than those. */
export const isWholeLedger = signal(false);

const KEPT = 1_000;

export async function loadRecent(): Promise<void> {
  const page = await torpor()
    .eventPage({ order: 'newest', limit: KEPT })
    .catch(() => undefined);
  if (page === undefined) return;
  recentEvents.value = page.items;
  isWholeLedger.value = page.nextCursor === null;
}

export function addRecent(event: EventView): void {
  const known = recentEvents.value;
  if (known === undefined || (known[0]?.position ?? 0) >= event.position) return;
  if (known.length >= KEPT) isWholeLedger.value = false;
  recentEvents.value = [event, ...known.slice(0, KEPT - 1)];
}

export function forgetRecent(): void {
  recentEvents.value = undefined;
}
