/** Where the frames of a WebSocket begin and end in a stream of bytes, and how a closing frame is written. */

const MAX_HEADER = 14;

/**
 * Follows one direction of a WebSocket. A frame can only be put between two others, so whoever wants to say
 * something of its own must know where that is.
 */
export class FrameCursor {
  /** What is known of a frame's header so far. */
  private header = Buffer.alloc(0);
  private payloadLeft = 0;

  get isBetweenFrames(): boolean {
    return this.header.length === 0 && this.payloadLeft === 0;
  }

  /** Follows the bytes, all or up to the first place between two frames; returns how many were followed. */
  follow(chunk: Buffer, stopBetween: boolean): number {
    let at = 0;
    while (at < chunk.length) {
      if (this.payloadLeft > 0) {
        const taken = Math.min(this.payloadLeft, chunk.length - at);
        this.payloadLeft -= taken;
        at += taken;
      } else at = this.followHeader(chunk, at);
      if (stopBetween && this.isBetweenFrames) return at;
    }
    return at;
  }

  private followHeader(chunk: Buffer, at: number): number {
    if (this.header.length === 0) {
      const whole = chunk.subarray(at, at + MAX_HEADER);
      const length = headerLength(whole);
      if (whole.length >= length) {
        this.payloadLeft = payloadLength(whole);
        return at + length;
      }
    }
    const missing = headerLength(this.header) - this.header.length;
    const next = chunk.subarray(at, at + missing);
    this.header = Buffer.concat([this.header, next]);
    if (this.header.length === headerLength(this.header)) {
      this.payloadLeft = payloadLength(this.header);
      this.header = Buffer.alloc(0);
    }
    return at + next.length;
  }
}

/** As far as the beginning of a header tells. */
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

/** "Service restart": a client may connect again, and that wakes the sandbox. */
const RESTART = 1012;
/** "Going away": what a page that is left says to its server. */
const GOING_AWAY = 1001;

export const COME_BACK = closeFrame(RESTART, 'sleeping, come back', false);
export const CLIENT_LEFT = closeFrame(GOING_AWAY, 'the sandbox goes to sleep', true);

/** What a client sends has to be masked; a mask of zeros is one too, and nothing in here is to be hidden. */
function closeFrame(code: number, reason: string, isMasked: boolean): Buffer {
  const text = Buffer.from(reason);
  const header = Buffer.from([0x88, (isMasked ? 0x80 : 0) | (text.length + 2)]);
  const mask = Buffer.alloc(isMasked ? 4 : 0);
  const codeBytes = Buffer.from([code >> 8, code & 0xff]);
  return Buffer.concat([header, mask, codeBytes, text]);
}
