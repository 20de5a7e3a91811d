/** Just enough of DER to write a certificate: every value is its kind, its length, its content. */

const SEQUENCE = 0x30;
const SET = 0x31;

export function sequence(...parts: readonly Buffer[]): Buffer {
  return value(SEQUENCE, ...parts);
}

export function set(...parts: readonly Buffer[]): Buffer {
  return value(SET, ...parts);
}

/** In a place of its own, by number. */
export function tagged(number: number, ...parts: readonly Buffer[]): Buffer {
  return value(0xa0 | number, ...parts);
}

/** The same for a value that is no container. */
export function taggedBytes(number: number, bytes: Buffer): Buffer {
  return value(0x80 | number, bytes);
}

export function oid(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split('.').map(Number);
  return value(0x06, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]));
}

/** Not negative, from its bytes. */
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

/** To the second; certificates of our time end before the year 2050, from which on the form is another. */
export function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\D/g, '').slice(2, 14);
  return value(0x17, Buffer.from(`${digits}Z`));
}

function value(kind: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([kind]), length(content.length), content]);
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
