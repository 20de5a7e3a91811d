/** The server name that a TLS client sends in the clear, before anything else. */
import { isIP } from 'node:net';
import type { Reading } from './first-bytes.ts';
import { normalName } from './host-name.ts';

const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const HOST_NAME = 0;
const RECORD_HEADER = 5;
const MESSAGE_HEADER = 4;

/** Whether bytes that begin so are TLS. One byte is not enough to say no. */
export function looksLikeTls(bytes: Buffer): boolean {
  return bytes[0] === HANDSHAKE && (bytes.length < 2 || bytes[1] === 3);
}

/** The message may be cut into as many records as the client likes. */
export function readClientHello(bytes: Buffer): Reading {
  const parts: Buffer[] = [];
  let gathered = 0;
  for (let offset = 0; bytes.length >= offset + RECORD_HEADER; ) {
    const length = bytes.readUInt16BE(offset + 3);
    if (bytes[offset] !== HANDSHAKE || length === 0) return { is: 'unclear' };
    const part = bytes.subarray(offset + RECORD_HEADER, offset + RECORD_HEADER + length);
    parts.push(part);
    gathered += part.length;
    offset += RECORD_HEADER + length;
    if (gathered < MESSAGE_HEADER) continue;
    const message = Buffer.concat(parts);
    if (message[0] !== CLIENT_HELLO) return { is: 'unclear' };
    const end = MESSAGE_HEADER + message.readUIntBE(1, 3);
    if (gathered >= end) return serverName(message.subarray(MESSAGE_HEADER, end));
  }
  return { is: 'more' };
}

function serverName(hello: Buffer): Reading {
  try {
    const names = serverNames(extensions(hello));
    if (names.length === 0) return { is: 'nameless' };
    const [text = ''] = names;
    if (names.length > 1) return { is: 'unclear' };
    const name = normalName(text);
    if (name !== undefined) return { is: 'name', name };
    return isIP(text) === 0 ? { is: 'unclear' } : { is: 'nameless' };
  } catch (thrown) {
    if (thrown instanceof RangeError) return { is: 'unclear' };
    throw thrown;
  }
}

/** Steps over the fixed parts: version and random, session, cipher suites, compression. */
function extensions(hello: Buffer): Vector {
  const fields = new Vector(hello);
  fields.skip(2 + 32);
  fields.vector(1);
  fields.vector(2);
  fields.vector(1);
  return fields.isAtEnd() ? fields : fields.vector(2);
}

/** Every one there is, so that two of them are seen for what they are. */
function serverNames(list: Vector): string[] {
  const names: string[] = [];
  while (!list.isAtEnd()) {
    const type = list.number(2);
    const content = list.vector(2);
    if (type !== SERVER_NAME) continue;
    const entries = content.vector(2);
    while (!entries.isAtEnd()) {
      const kind = entries.number(1);
      const entry = entries.vector(2);
      names.push(kind === HOST_NAME ? entry.text() : '');
    }
  }
  return names;
}

/** TLS's way of writing: numbers, and bytes after their length. Reading past the end is a RangeError. */
class Vector {
  readonly #bytes: Buffer;
  #offset = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  isAtEnd(): boolean {
    return this.#offset === this.#bytes.length;
  }

  skip(count: number): Buffer {
    const end = this.#offset + count;
    if (end > this.#bytes.length) throw new RangeError('past the end');
    const skipped = this.#bytes.subarray(this.#offset, end);
    this.#offset = end;
    return skipped;
  }

  number(width: number): number {
    return this.skip(width).readUIntBE(0, width);
  }

  vector(width: number): Vector {
    return new Vector(this.skip(this.number(width)));
  }

  text(): string {
    return this.#bytes.toString('latin1');
  }
}
