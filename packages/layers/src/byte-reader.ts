/** A stream taken in pieces of chosen lengths, whatever lengths it comes in. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #have: Buffer[] = [];
  #length = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Exactly so many bytes; fewer only where the stream ends. */
  async take(length: number): Promise<Buffer> {
    while (this.#length < length) {
      const next = await this.#source.next();
      if (next.done === true) break;
      this.#have.push(next.value);
      this.#length += next.value.length;
    }
    const all = this.#have.length === 1 ? (this.#have[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#have);
    const rest = all.subarray(length);
    this.#have = [rest];
    this.#length = rest.length;
    return all.subarray(0, length);
  }

  /** Reads to the end, where a source that failed says so. */
  async finish(): Promise<void> {
    while ((await this.take(1 << 20)).length > 0);
  }

  /** Lets go of a source that was not read to its end. */
  async close(): Promise<void> {
    await this.#source.return?.();
  }
}
