/** The part of DER that certificates need: every value is its tag, its length, its content. */

const SEQUENCE = 0x30;
const SET = 0x31;

export function sequence(...parts: readonly Buffer[]): Buffer {
  return value(SEQUENCE, ...parts);
}

export function set(...parts: readonly Buffer[]): Buffer {
  return value(SET, ...parts);
}

/** A constructed value with a context-specific tag. */
export function tagged(number: number, ...parts: readonly Buffer[]): Buffer {
  return value(0xa0 | number, ...parts);
}

/** A primitive value with a context-specific tag. */
export function taggedBytes(number: number, bytes: Buffer): Buffer {
  return value(0x80 | number, bytes);
}

export function oid(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split('.').map(Number);
  return value(0x06, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]));
}

/** A non-negative integer, from its big-endian bytes. */
export function integer(bytes: Uint8Array): Buffer {
  const start = bytes.findIndex((byte) => byte !== 0);
  const trimmed = start < 0 ? Buffer.from([0]) : Buffer.from(bytes.subarray(start));
  const needsZero = (trimmed[0] ?? 0) >= 0x80;
  return value(0x02, needsZero ? Buffer.concat([Buffer.from([0]), trimmed]) : trimmed);
}

export function boolean(is: boolean): Buffer {
  return value(0x01, Buffer.from([is ? 0xff : 0]));
}

export function utf8(text: string): Buffer {
  return value(0x0c, Buffer.from(text));
}

export function octets(bytes: Buffer): Buffer {
  return value(0x04, bytes);
}

export function bits(bytes: Buffer, unused = 0): Buffer {
  return value(0x03, Buffer.from([unused]), bytes);
}

/** UTCTime, to the second. It ends in 2049; our certificates are valid for ten years at most. */
export function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\D/g, '').slice(2, 14);
  return value(0x17, Buffer.from(`${digits}Z`));
}

function value(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag]), length(content.length), content]);
}

function length(count: number): Buffer {
  if (count < 0x80) return Buffer.from([count]);
  const bytes = Buffer.from(
    count.toString(16).padStart(2 * Math.ceil(count.toString(16).length / 2), '0'),
    'hex',
  );
  return Buffer.concat([Buffer.from([0x80 | bytes.length]), bytes]);
}

function base128(number: number): number[] {
  const last = number & 0x7f;
  let rest = number >> 7;
  const bytes = [last];
  while (rest > 0) {
    bytes.unshift((rest & 0x7f) | 0x80);
    rest >>= 7;
  }
  return bytes;
}
