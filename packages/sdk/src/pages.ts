/** Iterates over the items of a paginated list. */
import type { ReadOptions } from './json-calls.ts';

export interface Page<T> {
  readonly items: readonly T[];
  /** The cursor of the next page; null on the last page. */
  readonly nextCursor: string | null;
}

export interface PageOptions extends ReadOptions {
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

/** Every item of every page. The next page is requested only when it is needed. */
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
