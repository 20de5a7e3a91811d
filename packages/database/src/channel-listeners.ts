/** The listeners of notification channels on this server. */
export class ChannelListeners {
  readonly #listeners = new Map<string, Set<() => void>>();

  get channels(): string[] {
    return [...this.#listeners.keys()];
  }

  /** Returns a function that removes the listener. */
  add(channel: string, onNotice: () => void): () => void {
    const listeners = this.#listeners.get(channel) ?? new Set();
    this.#listeners.set(channel, listeners);
    // One function may be added twice; each subscription is removed on its own.
    const listener = () => onNotice();
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(channel) === listeners) this.#listeners.delete(channel);
    };
  }

  /** Each listener runs in a microtask of its own, so that its failure is not taken for a failure of the commit. */
  notify(channels: Iterable<string>): void {
    for (const channel of channels) {
      for (const listener of this.#listeners.get(channel) ?? []) queueMicrotask(listener);
    }
  }
}
