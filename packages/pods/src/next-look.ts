const SHORTEST_MS = 10;
const LONGEST_MS = 500;

/** How long until the next look at something that has been awaited for so long: what has happened is seen a tenth later. */
export function nextLookMs(waitedMs: number): number {
  return Math.min(Math.max(waitedMs / 10, SHORTEST_MS), LONGEST_MS);
}
