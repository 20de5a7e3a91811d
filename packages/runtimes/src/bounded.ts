/**
 * Runs `work` on every item, at most `limit` at a time.
 *
 * After a failure or an abort nothing more is started, and the promise rejects only when everything under
 * way has ended: nobody writes into a directory any more when its owner hears of the failure.
 */
export async function forEachBounded<T>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  let next = 0;
  let failure: { readonly thrown: unknown } | undefined;
  const lane = async () => {
    while (next < items.length && failure === undefined) {
      const item = items[next++] as T;
      try {
        signal?.throwIfAborted();
        await work(item);
      } catch (thrown) {
        failure ??= { thrown };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
  if (failure !== undefined) throw failure.thrown;
}
