/** Sizes of sealed checkpoints and layers, each measured once: neither changes while it is sealed. */
export class KnownSizes {
  readonly #bytes = new Map<string, number>();

  /** A part that cannot be measured now, because it is damaged or being removed, counts as nothing. */
  async of(id: string, measure: () => Promise<number>): Promise<number> {
    const known = this.#bytes.get(id);
    if (known !== undefined) return known;
    const bytes = await measure().catch(() => undefined);
    if (bytes !== undefined) this.#bytes.set(id, bytes);
    return bytes ?? 0;
  }

  forget(id: string): void {
    this.#bytes.delete(id);
  }

  /** Forgets what is not there any more: a part that comes back may have been changed meanwhile. */
  keepOnly(ids: Iterable<string>): void {
    const present = new Set(ids);
    for (const id of this.#bytes.keys()) if (!present.has(id)) this.#bytes.delete(id);
  }
}
