/**
 * Reads rows in pages by id, so that a hundred thousand rows cost one page of memory. The signal ends the sequence
 * between two rows.
 */
export async function* inPages<T extends { readonly id: string }>(
  read: (after: string, limit: number) => Promise<T[]>,
  limit: number,
  signal?: AbortSignal,
): AsyncGenerator<T> {
  const isStopped = () => signal?.aborted === true;
  let after = '';
  while (!isStopped()) {
    const page = await read(after, limit);
    for (const row of page) {
      if (isStopped()) return;
      yield row;
    }
    const last = page.at(-1);
    if (last === undefined || page.length < limit) return;
    after = last.id;
  }
}
