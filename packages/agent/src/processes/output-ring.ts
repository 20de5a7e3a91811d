/**
 * A ring buffer of the latest output of a process, for readers that may attach at any time.
 *
 * The ring is the only buffer; a reader is a position in it. While a reader is attached, the process is held back
 * before unread output would be lost, as a pipe does. Without a reader, the newest output replaces the oldest. So
 * memory stays within the capacity plus one read.
 */
export type Channel = 'stdout' | 'stderr' | 'pty';

export interface OutputChunk {
  readonly channel: Channel;
  readonly bytes: Uint8Array;
}

/** Stops and resumes reading from the process, which blocks the process when its pipe is full. */
export interface Flow {
  pause(): void;
  resume(): void;
}

export interface OutputReader {
  /** Bytes of output that were dropped before this reader attached. */
  readonly missedBytes: number;
  /** Waits for the next output; undefined after the last. Rejects with the signal's reason. */
  next(signal: AbortSignal): Promise<OutputChunk | undefined>;
  /** Must be called when the reader leaves: an attached reader holds the process back. */
  detach(): void;
}

/** Small pieces of output are merged up to this size: each chunk has an overhead. */
const MAX_MERGED_BYTES = 4096;

interface KeptChunk {
  readonly channel: Channel;
  /** The position of the first byte in all output of the process. */
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

  /** All bytes ever written, kept or not. */
  get writtenBytes(): number {
    return this.#written;
  }

  get keptBytes(): number {
    return this.#written - this.#keptFrom;
  }

  /** Whether a slow reader currently holds the process back. */
  get isHoldingProcess(): boolean {
    return this.#paused;
  }

  append(channel: Channel, bytes: Buffer): void {
    if (this.#finished || bytes.length === 0) return;
    const last = this.#chunks.at(-1);
    if (last?.channel === channel && last.bytes.length + bytes.length <= MAX_MERGED_BYTES) {
      last.bytes = Buffer.concat([last.bytes, bytes]);
    } else this.#chunks.push({ channel, start: this.#written, bytes });
    this.#written += bytes.length;
    this.#dropOldest(this.#capacity);
    this.updateFlow();
    for (const reader of this.#readers) reader.wake();
  }

  /** No more output will come. */
  finish(): void {
    this.#finished = true;
    this.updateFlow();
    for (const reader of this.#readers) reader.wake();
  }

  /** Drops the oldest output until at most this many bytes are kept. */
  shrink(bytes: number): void {
    this.#dropOldest(bytes);
  }

  attach(): OutputReader {
    const reader = new RingReader(this, this.#keptFrom);
    this.#readers.add(reader);
    this.updateFlow();
    return reader;
  }

  detach(reader: RingReader): void {
    if (this.#readers.delete(reader)) this.updateFlow();
  }

  /** The output at a position: a chunk, the end, or nothing yet. */
  read(position: number): OutputChunk | 'end' | 'nothing' {
    if (position >= this.#written) return this.#finished ? 'end' : 'nothing';
    const chunk = this.#chunks[this.#indexAt(position)];
    if (chunk === undefined) return 'nothing';
    return { channel: chunk.channel, bytes: chunk.bytes.subarray(position - chunk.start) };
  }

  /** Pauses the process at half the capacity unread and resumes it below a quarter, so that it does not toggle fast. */
  updateFlow(): void {
    let unread = 0;
    // After the end there is no process left to hold back.
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

  #dropOldest(bytes: number): void {
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
        this.#ring.updateFlow();
        return found;
      }
      await this.#nextWake(signal);
    }
  }

  wake(): void {
    this.#waiting?.();
  }

  detach(): void {
    this.#ring.detach(this);
  }

  #nextWake(signal: AbortSignal): Promise<void> {
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
