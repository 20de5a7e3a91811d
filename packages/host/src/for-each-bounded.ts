/**
 * Runs `work` on every item, at most `limit` at a time.
 *
 * After a failure or an abort no further item is started. The promise rejects only when all running calls have ended, so
 * the caller may then remove files that these calls use.
 */
export async function forEachBounded<T>(
  items: readonly T[],
  limit: number,
  work: (item: T, index: number) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  let next = 0;
  let failure: { readonly thrown: unknown } | undefined;
  const worker = async () => {
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
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  if (failure !== undefined) throw failure.thrown;
}
