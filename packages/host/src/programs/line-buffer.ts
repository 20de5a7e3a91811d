/** Assembles pieces of output into lines, separately for each channel. */

/**
 * Longer than any stored line. The rest of a longer line is dropped, so that every stored part is cleaned as a whole.
 */
const MAX_LINE = 16_384;

export class LineBuffer {
  readonly #open = new Map<string, string>();
  readonly #onLine: (channel: string, line: string) => void;

  constructor(onLine: (channel: string, line: string) => void) {
    this.#onLine = onLine;
  }

  add(channel: string, text: string): void {
    const [first = '', ...rest] = text.split(/\r\n|\n|\r(?!\n)/);
    let line = this.#joined(channel, first);
    for (const next of rest) {
      this.#onLine(channel, line);
      line = next.slice(0, MAX_LINE);
    }
    this.#open.set(channel, line);
  }

  /** Emits the lines that have no line break yet. */
  end(): void {
    for (const [channel, line] of this.#open) if (line !== '') this.#onLine(channel, line);
    this.#open.clear();
  }

  #joined(channel: string, text: string): string {
    const before = this.#open.get(channel) ?? '';
    return before + text.slice(0, MAX_LINE - before.length);
  }
}
