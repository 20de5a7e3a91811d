/** Who listens to which channel on this server. */
export class ChannelListeners {
  readonly #listeners = new Map<string, Set<() => void>>();

  get channels(): string[] {
    return [...this.#listeners.keys()];
  }

  /** Returns the way to take the listener off again. */
  add(channel: string, onNotice: () => void): () => void {
    const listeners = this.#listeners.get(channel) ?? new Set();
    this.#listeners.set(channel, listeners);
    // The same function may listen twice; each of its subscriptions ends by itself.
    const listener = () => onNotice();
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(channel) === listeners) this.#listeners.delete(channel);
    };
  }

  /** A listener runs on its own, so that its failure is not taken for one of the commit that woke it. */
  notify(channels: Iterable<string>): void {
    for (const channel of channels) {
      for (const listener of this.#listeners.get(channel) ?? []) queueMicrotask(listener);
    }
  }
}
