/** Lists come in pages; most callers want the items. */

export interface Page<T> {
  readonly items: readonly T[];
  /** Where the next page begins; null on the last one. */
  readonly nextCursor: string | null;
}

export interface PageOptions {
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
  readonly signal?: AbortSignal | undefined;
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
