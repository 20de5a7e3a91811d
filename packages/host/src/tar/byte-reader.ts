/** Reads a byte stream in pieces of chosen lengths, independent of the lengths of its chunks. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #chunks: Buffer[] = [];
  #length = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Resolves to exactly `length` bytes, or to fewer at the end of the stream. */
  async take(length: number): Promise<Buffer> {
    while (this.#length < length) {
      const next = await this.#source.next();
      if (next.done === true) break;
      this.#chunks.push(next.value);
      this.#length += next.value.length;
    }
    const all =
      this.#chunks.length === 1 ? (this.#chunks[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#chunks);
    const rest = all.subarray(length);
    this.#chunks = [rest];
    this.#length = rest.length;
    return all.subarray(0, length);
  }

  /** Reads to the end of the stream. A source that reports its failure at the end, such as a program, throws here. */
  async finish(): Promise<void> {
    while ((await this.take(1 << 20)).length > 0);
  }

  /** Releases a source that was not read to its end. */
  async close(): Promise<void> {
    await this.#source.return?.();
  }
}
