/** How long work in the background lets work pass that callers wait for. The engine decides how long that takes (`Foreground`). */

/** Called between two pieces of the work. Waits while more urgent work is under way. Rejects when the work is aborted. */
export type GiveWay = () => Promise<void>;

/** Gives way before each chunk of the content. A program that writes the content stands still meanwhile. */
export async function* givingWay<T>(content: AsyncIterable<T>, giveWay: GiveWay): AsyncGenerator<T> {
  for await (const chunk of content) {
    await giveWay();
    yield chunk;
  }
}
