/**
 * Port-forwards to agents that are open before they are needed. To open one takes as long as several other requests: the API
 * server connects to the node, and the node to the pod. A start knows early that it will need the agent, and that a command
 * mostly follows it.
 */
import type { Duplex } from 'node:stream';
import type { Clock } from '@torpor/engine';

/** Shorter than any party on the way keeps a connection on which nothing was sent. */
const KEPT_MS = 10_000;

interface Ahead {
  /** Undefined when it could not be opened. */
  readonly stream: Promise<Duplex | undefined>;
  readonly removed: AbortController;
}

export class ForwardsAhead {
  readonly #clock: Clock;
  readonly #open: (pod: string) => Promise<Duplex>;
  readonly #waiting = new Map<string, Ahead>();

  constructor(clock: Clock, open: (pod: string) => Promise<Duplex>) {
    this.#clock = clock;
    this.#open = open;
  }

  /** Never fails: a caller that finds no port-forward opens one, and gets the error. */
  add(pod: string): void {
    if (this.#waiting.has(pod)) return;
    const ahead = { stream: this.#open(pod).catch(() => undefined), removed: new AbortController() };
    this.#waiting.set(pod, ahead);
    const close = () => {
      if (this.#waiting.get(pod) === ahead) this.close(pod);
    };
    // An agent says nothing before it is asked: what can be read is the end of the connection.
    ahead.stream.then((stream) => (stream === undefined ? close() : stream.once('readable', close)));
    this.#clock.sleep(KEPT_MS, ahead.removed.signal).then(close, () => {});
  }

  /** Undefined when none waits, or when it could not be opened. */
  async take(pod: string): Promise<Duplex | undefined> {
    const stream = await this.#remove(pod)?.stream;
    return stream?.destroyed ? undefined : stream?.removeAllListeners('readable');
  }

  close(pod: string): void {
    this.#remove(pod)?.stream.then((stream) => stream?.destroy());
  }

  closeAll(): void {
    for (const pod of [...this.#waiting.keys()]) this.close(pod);
  }

  #remove(pod: string): Ahead | undefined {
    const ahead = this.#waiting.get(pod);
    this.#waiting.delete(pod);
    ahead?.removed.abort();
    return ahead;
  }
}
