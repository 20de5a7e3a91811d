/** One page of a list, made from one row more than the page holds. */

export interface Page<T> {
  readonly items: T[];
  /** Null on the last page. */
  readonly nextCursor: string | null;
}

/**
 * `found` was read with a limit of `limit + 1`. The extra row is not shown; it only says that another page follows.
 * Without it a last page that is full would lead to an empty one.
 */
export function pageOf<T>(found: readonly T[], limit: number, cursorOf: (last: T) => string): Page<T> {
  const items = found.slice(0, limit);
  const last = items.at(-1);
  return { items, nextCursor: found.length > limit && last !== undefined ? cursorOf(last) : null };
}
