/** Lists come in pages; most callers want the items. */
import type { ReadOptions } from './json-calls.ts';

export interface Page<T> {
  readonly items: readonly T[];
  /** Where the next page begins; null on the last one. */
  readonly nextCursor: string | null;
}

export interface PageOptions extends ReadOptions {
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

/** Every item of every page, asking for the next page only when it is wanted. */
export async function* everyItem<T>(
  page: (cursor: string | undefined) => Promise<Page<T>>,
): AsyncGenerator<T, void> {
  let cursor: string | undefined;
  do {
    const { items, nextCursor } = await page(cursor);
    yield* items;
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
}
