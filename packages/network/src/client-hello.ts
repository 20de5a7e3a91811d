/** Parses the server name (SNI) in the first message of a TLS client. */
import { isIP } from 'node:net';
import type { ParsedName } from './first-bytes.ts';
import { normalName } from './host-name.ts';

const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const HOST_NAME = 0;
const RECORD_HEADER = 5;
const MESSAGE_HEADER = 4;

/** Whether the first bytes may be TLS. One byte is not enough to rule it out. */
export function looksLikeTls(bytes: Buffer): boolean {
  return bytes[0] === HANDSHAKE && (bytes.length < 2 || bytes[1] === 3);
}

/** The client may split the message into any number of records. */
export function parseClientHello(bytes: Buffer): ParsedName {
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

function serverName(hello: Buffer): ParsedName {
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

/** Skips version and random, session, cipher suites and compression. */
function extensions(hello: Buffer): Vector {
  const fields = new Vector(hello);
  fields.skip(2 + 32);
  fields.vector(1);
  fields.vector(2);
  fields.vector(1);
  return fields.isAtEnd() ? fields : fields.vector(2);
}

/** All server names, because a message with two is refused. */
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

/** The encoding of TLS: numbers, and byte strings after their length. Throws a RangeError past the end. */
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
