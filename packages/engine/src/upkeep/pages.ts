/** Goes through rows in pages by id, so that a hundred thousand of them cost one page of memory. */

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
