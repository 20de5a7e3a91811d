/** The output of a command as text: collected up to a limit, or decoded piece by piece. */
import { StringDecoder } from 'node:string_decoder';

/** Keeps the first bytes. The rest is read and dropped, so that the command never blocks. */
export class BoundedOutput {
  readonly #max: number;
  readonly #chunks: Uint8Array[] = [];
  #size = 0;
  truncated = false;

  constructor(max: number) {
    this.#max = max;
  }

  add(bytes: Uint8Array): void {
    const room = this.#max - this.#size;
    const kept = bytes.length > room ? bytes.subarray(0, room) : bytes;
    if (kept.length < bytes.length) this.truncated = true;
    if (kept.length === 0) return;
    this.#chunks.push(kept);
    this.#size += kept.length;
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString('utf8');
  }

  /** The last bytes that were kept. */
  tail(bytes: number): string {
    return Buffer.concat(this.#chunks).subarray(-bytes).toString('utf8');
  }
}

/** Decodes UTF-8. A character that is split between two chunks is joined again. */
export class OutputDecoder {
  readonly #decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };

  decode(channel: 'stdout' | 'stderr', bytes: Uint8Array): string {
    return this.#decoders[channel].write(Buffer.from(bytes));
  }

  /** The remaining text at the end of the stream. */
  flush(channel: 'stdout' | 'stderr'): string {
    return this.#decoders[channel].end();
  }
}
