/** Framing between the `sudo` program and the agent: a kind, a length, and that many bytes. */

/** The index of a kind is its number on the wire. Both ends always come from the same build. */
const KINDS = [
  /** To the agent: a `SudoRequest` as JSON; the first frame. */
  'request',
  /** To the agent: one piece of input, in answer to one `wantInput`. */
  'input',
  'inputEnd',
  /** To the agent: the size of the terminal, as JSON. */
  'size',
  /** To the agent: the name of a signal that the program was sent. */
  'signal',
  'stdout',
  'stderr',
  /** To the program: asks for one piece of input. The program reads no input before, because others may read it. */
  'wantInput',
  /** To the program: the exit code as text; the last frame. */
  'exit',
  /** To the program: why nothing was started; the last frame. */
  'refused',
] as const;

export type FrameKind = (typeof KINDS)[number];

export interface Frame {
  readonly kind: FrameKind;
  readonly bytes: Buffer;
}

const HEAD_BYTES = 5;

/** A request carries an environment and arguments, which the kernel limits to two mebibytes. */
const MAX_BYTES = 8 * 1024 * 1024;

export function frame(kind: FrameKind, content: Uint8Array | string = ''): Buffer {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt8(KINDS.indexOf(kind), 0);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

/** Assembles frames from the pieces in which they arrive. */
export class FrameReader {
  #pending: Buffer = Buffer.alloc(0);

  /** Throws on invalid input; nothing after it can be read. */
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
