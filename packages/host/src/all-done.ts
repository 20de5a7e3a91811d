/**
 * Waits until all tasks have ended, also when one of them fails, so that no task outlives the call. Then throws the first
 * failure, in the order of the arguments.
 */
export async function allDone<T extends readonly (Promise<unknown> | undefined)[]>(
  ...tasks: T
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  await Promise.allSettled(tasks);
  return Promise.all(tasks);
}
