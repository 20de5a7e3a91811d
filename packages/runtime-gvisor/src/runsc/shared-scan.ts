/**
 * Runs one scan for all callers that ask while another scan is under way. A scan of all processes of the machine takes time on
 * the thread of the server, and sandboxes that are ended at the same time would each make several.
 */
export class SharedScan<T> {
  readonly #scan: () => Promise<T>;
  /** Never rejects. */
  #last: Promise<unknown> = Promise.resolve();
  #next: Promise<T> | undefined;

  constructor(scan: () => Promise<T>) {
    this.#scan = scan;
  }

  /** The result of a scan that begins after this call. */
  run(): Promise<T> {
    if (this.#next !== undefined) return this.#next;
    const next = this.#last.then(() => {
      this.#next = undefined;
      return this.#scan();
    });
    this.#next = next;
    this.#last = next.catch(() => {});
    return next;
  }
}
