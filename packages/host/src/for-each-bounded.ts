/**
 * Runs `work` on every item, at most `limit` at a time.
 *
 * After a failure or an abort nothing more is started, and the promise rejects only when everything under
 * way has ended: a caller that was told of a failure may remove the files, and no late call touches them.
 */
export async function forEachBounded<T>(
  items: readonly T[],
  limit: number,
  work: (item: T, index: number) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  let next = 0;
  let failure: { readonly thrown: unknown } | undefined;
  const lane = async () => {
    while (next < items.length && failure === undefined) {
      const index = next++;
      try {
        signal?.throwIfAborted();
        await work(items[index] as T, index);
      } catch (thrown) {
        failure ??= { thrown };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, lane));
  if (failure !== undefined) throw failure.thrown;
}
