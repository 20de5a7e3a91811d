/** What the `sudo` program and the agent say to each other: a kind, a length, and so many bytes. */

/** By the number that stands for each on the wire. Both ends are always of one build. */
const KINDS = [
  /** To the agent: an `Order` as JSON, first and once. */
  'order',
  /** To the agent: one piece of input, for one `wantInput`. */
  'input',
  'inputEnd',
  /** To the agent: the size of the terminal, as JSON. */
  'size',
  /** To the agent: the name of a signal that the program was sent. */
  'signal',
  'stdout',
  'stderr',
  /** To the program: room for one more piece of input. It reads nothing before, as it is not its to read. */
  'wantInput',
  /** To the program: the exit code, as text. The last one. */
  'exit',
  /** To the program: a sentence why nothing was started. The last one. */
  'refused',
] as const;

export type FrameKind = (typeof KINDS)[number];

export interface Frame {
  readonly kind: FrameKind;
  readonly bytes: Buffer;
}

const HEAD_BYTES = 5;

/** An order carries an environment and arguments, for which the kernel's own limit is two mebibytes. */
const MAX_BYTES = 8 * 1024 * 1024;

export function frame(kind: FrameKind, content: Uint8Array | string = ''): Buffer {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt8(KINDS.indexOf(kind), 0);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

/** Frames out of the pieces in which they arrive. */
export class FrameReader {
  #pending: Buffer = Buffer.alloc(0);

  /** Throws on what cannot be a frame; nothing after it can be read. */
  *push(piece: Buffer): Generator<Frame> {
    this.#pending = this.#pending.length === 0 ? piece : Buffer.concat([this.#pending, piece]);
    while (this.#pending.length >= HEAD_BYTES) {
      const kind = KINDS[this.#pending.readUInt8(0)];
      const length = this.#pending.readUInt32BE(1);
      if (kind === undefined || length > MAX_BYTES) throw new Error('This is not a frame.');
      if (this.#pending.length < HEAD_BYTES + length) return;
      const bytes = this.#pending.subarray(HEAD_BYTES, HEAD_BYTES + length);
      this.#pending = this.#pending.subarray(HEAD_BYTES + length);
      yield { kind, bytes };
    }
  }
}
