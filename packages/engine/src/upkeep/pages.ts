/** Goes through many rows without holding them all, and without letting one wait for all the others. */

/** Rows in pages by id, so that a hundred thousand of them cost one page of memory. */
export async function* inPages<T extends { readonly id: string }>(
  read: (after: string, limit: number) => Promise<T[]>,
  limit: number,
): AsyncGenerator<T> {
  let after = '';
  for (;;) {
    const page = await read(after, limit);
    yield* page;
    const last = page.at(-1);
    if (last === undefined || page.length < limit) return;
    after = last.id;
  }
}

/** Works on several at once. `work` deals with its own failures; the signal ends it between two items. */
export async function withHands<T>(
  items: AsyncIterable<T>,
  hands: number,
  signal: AbortSignal,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.asyncIterator]();
  // Asking an iterator for the next item before it gave the last one is allowed, but not by a generator.
  let turn: Promise<unknown> = Promise.resolve();
  const next = () => {
    const item = turn.then(() => iterator.next());
    turn = item.catch(() => {});
    return item;
  };
  const hand = async () => {
    while (!signal.aborted) {
      const item = await next();
      if (item.done === true) return;
      await work(item.value);
    }
  };
  await Promise.all(Array.from({ length: hands }, hand));
}
