/**
 * What a process has written lately, for readers that come when they like.
 *
 * The ring is the only buffer: readers are positions in it. While somebody reads, the process is held
 * back before anything unread would be lost, as a pipe would do; while nobody does, the oldest output
 * makes room for the newest. So memory stays within the capacity plus what was on its way.
 */
export type Channel = 'stdout' | 'stderr' | 'pty';

export interface OutputChunk {
  readonly channel: Channel;
  readonly bytes: Uint8Array;
}

/** Holds the process back, and lets it go on. */
export interface Flow {
  pause(): void;
  resume(): void;
}

export interface OutputReader {
  /** Bytes written before the oldest that was still kept when this reader came. */
  readonly missedBytes: number;
  /** The next output; undefined when there will be no more. Rejects with the signal's reason. */
  next(signal: AbortSignal): Promise<OutputChunk | undefined>;
  /** A reader that went away must not hold the process back. */
  detach(): void;
}

/** Output that comes in drops is put together up to this size, so that the drops do not cost more than the bytes. */
const MERGED_BYTES = 4096;

interface KeptChunk {
  readonly channel: Channel;
  /** Where it begins in everything the process ever wrote. */
  readonly start: number;
  bytes: Buffer;
}

export class OutputRing {
  readonly #chunks: KeptChunk[] = [];
  readonly #readers = new Set<RingReader>();
  #keptFrom = 0;
  #written = 0;
  #finished = false;
  #paused = false;
  readonly #capacity: number;
  readonly #flow: Flow;

  constructor(capacity: number, flow: Flow) {
    this.#capacity = capacity;
    this.#flow = flow;
  }

  /** Everything that was ever written, kept or not. */
  get writtenBytes(): number {
    return this.#written;
  }

  get keptBytes(): number {
    return this.#written - this.#keptFrom;
  }

  /** Whether a slow reader holds the process back at the moment. */
  get holding(): boolean {
    return this.#paused;
  }

  append(channel: Channel, bytes: Buffer): void {
    if (this.#finished || bytes.length === 0) return;
    const last = this.#chunks.at(-1);
    if (last?.channel === channel && last.bytes.length + bytes.length <= MERGED_BYTES) {
      last.bytes = Buffer.concat([last.bytes, bytes]);
    } else this.#chunks.push({ channel, start: this.#written, bytes });
    this.#written += bytes.length;
    this.#makeRoom(this.#capacity);
    this.regulate();
    for (const reader of this.#readers) reader.wake();
  }

  /** No more output will come. */
  finish(): void {
    this.#finished = true;
    this.regulate();
    for (const reader of this.#readers) reader.wake();
  }

  /** Gives up kept output beyond a number of bytes, the oldest first. */
  shrink(bytes: number): void {
    this.#makeRoom(bytes);
  }

  attach(): OutputReader {
    const reader = new RingReader(this, this.#keptFrom);
    this.#readers.add(reader);
    this.regulate();
    return reader;
  }

  detach(reader: RingReader): void {
    if (this.#readers.delete(reader)) this.regulate();
  }

  /** What stands at a position: a chunk, the end, or nothing yet. */
  read(position: number): OutputChunk | 'end' | 'nothing' {
    if (position >= this.#written) return this.#finished ? 'end' : 'nothing';
    const chunk = this.#chunks[this.#indexAt(position)];
    if (chunk === undefined) return 'nothing';
    return { channel: chunk.channel, bytes: chunk.bytes.subarray(position - chunk.start) };
  }

  /** A process held back goes on only when its slowest reader has caught up well, so as not to stutter. */
  regulate(): void {
    let unread = 0;
    // After the end there is nothing left to hold back.
    const readers = this.#finished ? [] : this.#readers;
    for (const reader of readers) unread = Math.max(unread, this.#written - reader.position);
    if (!this.#paused && unread > this.#capacity / 2) {
      this.#paused = true;
      this.#flow.pause();
    } else if (this.#paused && unread < this.#capacity / 4) {
      this.#paused = false;
      this.#flow.resume();
    }
  }

  #makeRoom(bytes: number): void {
    let needed = this.#written;
    for (const reader of this.#readers) needed = Math.min(needed, reader.position);
    for (;;) {
      const oldest = this.#chunks[0];
      if (oldest === undefined || this.keptBytes <= bytes) return;
      const end = oldest.start + oldest.bytes.length;
      if (end > needed) return;
      this.#chunks.shift();
      this.#keptFrom = end;
    }
  }

  #indexAt(position: number): number {
    let low = 0;
    let high = this.#chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#chunks[middle]?.start ?? 0) <= position) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

class RingReader implements OutputReader {
  readonly missedBytes: number;
  position: number;
  readonly #ring: OutputRing;
  #waiting: (() => void) | undefined;

  constructor(ring: OutputRing, position: number) {
    this.#ring = ring;
    this.position = position;
    this.missedBytes = position;
  }

  async next(signal: AbortSignal): Promise<OutputChunk | undefined> {
    for (;;) {
      signal.throwIfAborted();
      const found = this.#ring.read(this.position);
      if (found === 'end') return undefined;
      if (found !== 'nothing') {
        this.position += found.bytes.length;
        this.#ring.regulate();
        return found;
      }
      await this.#wakened(signal);
    }
  }

  wake(): void {
    this.#waiting?.();
  }

  detach(): void {
    this.#ring.detach(this);
  }

  #wakened(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        this.#waiting = undefined;
        signal.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting = done;
      signal.addEventListener('abort', done, { once: true });
    });
  }
}
