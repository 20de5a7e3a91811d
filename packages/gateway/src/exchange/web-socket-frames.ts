/** Finds the boundaries of WebSocket frames in a stream of bytes, and writes close frames. */

const MAX_HEADER = 14;

/** Follows one direction of a WebSocket. A frame of the gateway's own can only be inserted between two frames. */
export class FrameCursor {
  /** The beginning of a frame header whose rest has not come yet. */
  #header = Buffer.alloc(0);
  #payloadLeft = 0;

  get isBetweenFrames(): boolean {
    return this.#header.length === 0 && this.#payloadLeft === 0;
  }

  /** Follows all bytes, or with `stopBetween` only up to the first frame boundary. Returns how many were followed. */
  follow(chunk: Buffer, stopBetween: boolean): number {
    let at = 0;
    while (at < chunk.length) {
      if (this.#payloadLeft > 0) {
        const taken = Math.min(this.#payloadLeft, chunk.length - at);
        this.#payloadLeft -= taken;
        at += taken;
      } else at = this.#followHeader(chunk, at);
      if (stopBetween && this.isBetweenFrames) return at;
    }
    return at;
  }

  #followHeader(chunk: Buffer, at: number): number {
    if (this.#header.length === 0) {
      const whole = chunk.subarray(at, at + MAX_HEADER);
      const length = headerLength(whole);
      if (whole.length >= length) {
        this.#payloadLeft = payloadLength(whole);
        return at + length;
      }
    }
    const missing = headerLength(this.#header) - this.#header.length;
    const next = chunk.subarray(at, at + missing);
    this.#header = Buffer.concat([this.#header, next]);
    if (this.#header.length === headerLength(this.#header)) {
      this.#payloadLeft = payloadLength(this.#header);
      this.#header = Buffer.alloc(0);
    }
    return at + next.length;
  }
}

/** The length of a header, as far as its first bytes tell. */
function headerLength(header: Buffer): number {
  if (header.length < 2) return 2;
  const second = header[1] as number;
  const length = second & 0x7f;
  return 2 + (length === 126 ? 2 : length === 127 ? 8 : 0) + (second & 0x80 ? 4 : 0);
}

function payloadLength(header: Buffer): number {
  const length = (header[1] as number) & 0x7f;
  if (length === 126) return header.readUInt16BE(2);
  return length === 127 ? Number(header.readBigUInt64BE(2)) : length;
}

/** "Service restart": the client may connect again, and that wakes the sandbox. */
const RESTART = 1012;
/** "Going away": the code that a browser sends when its page is left. */
const GOING_AWAY = 1001;

export const COME_BACK = closeFrame(RESTART, 'sleeping, come back', false);
export const CLIENT_LEFT = closeFrame(GOING_AWAY, 'the sandbox goes to sleep', true);

/** Frames from a client must be masked. A mask of zeros is allowed and enough. */
function closeFrame(code: number, reason: string, isMasked: boolean): Buffer {
  const text = Buffer.from(reason);
  const header = Buffer.from([0x88, (isMasked ? 0x80 : 0) | (text.length + 2)]);
  const mask = Buffer.alloc(isMasked ? 4 : 0);
  const codeBytes = Buffer.from([code >> 8, code & 0xff]);
  return Buffer.concat([header, mask, codeBytes, text]);
}
