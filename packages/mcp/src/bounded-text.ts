/** Text that grows and keeps only its end: a context window is small, and errors are at the end. */
export class BoundedText {
  readonly #limit: number;
  #text = '';
  #dropped = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(text: string): void {
    this.#text += text;
    const excess = this.#text.length - this.#limit;
    if (excess <= 0) return;
    this.#text = this.#text.slice(excess);
    this.#dropped += excess;
  }

  toString(): string {
    return this.#dropped === 0
      ? this.#text
      : `[${this.#dropped} characters before this were left out]\n${this.#text}`;
  }
}
