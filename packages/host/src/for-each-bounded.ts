/**
 * Runs `work` on every item, at most `limit` at a time. Items may come from an async generator, such as pages of a table:
 * the next item is read when a worker is free.
 *
 * After a failure or an abort no further work starts, and the promise rejects only when all work under way has ended: a
 * caller that learns of a failure may remove the files, and no late call touches them.
 */
export async function forEachBounded<T>(
  items: Iterable<T> | AsyncIterable<T>,
  limit: number,
  work: (item: T, index: number) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  // Several workers may call `next` before the first call has answered: async generators queue the calls.
  const iterator = Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]();
  let count = 0;
  let failure: { readonly thrown: unknown } | undefined;
  const runWorker = async () => {
    while (failure === undefined) {
      try {
        const item = await iterator.next();
        if (item.done === true || failure !== undefined) return;
        signal?.throwIfAborted();
        await work(item.value, count++);
      } catch (thrown) {
        failure ??= { thrown };
      }
    }
  };
  await Promise.all(Array.from({ length: limit }, runWorker));
  if (failure === undefined) return;
  await iterator.return?.();
  throw failure.thrown;
}
