/** The head of an answer: what it says, and how its body is framed. */

export interface ResponseHead {
  readonly status: number;
  readonly reason: string;
  /** Names and values take turns, in the order and the case they were sent in. */
  readonly headers: readonly string[];
}

/** The answer is not HTTP, or breaks off. */
export class BadResponse extends Error {
  override readonly name = 'BadResponse';
}

export type Framing = 'none' | 'chunked' | 'until-close' | { readonly length: number };

export interface ReadHead extends ResponseHead {
  readonly framing: Framing;
  /** Whether the other side means to take another request on this connection. */
  readonly keepsAlive: boolean;
  /** How long it promises to wait for one. */
  readonly keepAliveMs: number | undefined;
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/;
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

export interface StatusLine {
  readonly minor: number;
  readonly status: number;
  readonly reason: string;
}

export function parseStatusLine(line: string): StatusLine {
  const [, minor, status, reason = ''] = STATUS_LINE.exec(line) ?? [];
  if (status === undefined) throw new BadResponse('The answer does not begin like one.');
  return { minor: Number(minor), status: Number(status), reason };
}

/** Adds the field to the others. A line that continues the one before it is not read any more by anybody. */
export function parseField(line: string, into: string[]): void {
  const colon = line.indexOf(':');
  const name = line.slice(0, colon);
  if (colon < 1 || !NAME.test(name)) throw new BadResponse('A header of the answer has no name.');
  into.push(name, withoutBlanks(line, colon + 1));
}

/** `trim` would take more away than a header may have around its value. */
function withoutBlanks(line: string, from: number): string {
  let start = from;
  let end = line.length;
  while (start < end && isBlank(line.charCodeAt(start))) start++;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
  return line.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 32 || code === 9;
}

/** `method` is the one that was asked with: the answer to HEAD has no body, whatever it says. */
export function readHead({ minor, status, reason }: StatusLine, headers: string[], method: string): ReadHead {
  let lengths: string | undefined;
  let coding: string | undefined;
  let connection = '';
  let keepAlive = '';
  for (let i = 0; i < headers.length; i += 2) {
    const value = headers[i + 1] as string;
    switch ((headers[i] as string).toLowerCase()) {
      case 'content-length':
        lengths = lengths === undefined ? value : `${lengths},${value}`;
        break;
      case 'transfer-encoding':
        coding = coding === undefined ? value : `${coding},${value}`;
        break;
      case 'connection':
        connection += `,${value}`;
        break;
      case 'keep-alive':
        keepAlive += `,${value}`;
        break;
      default:
    }
  }
  const framing = framingOf(status, method, lengths, coding);
  // Both lengths at once is how answers are smuggled; the connection is of no more use after that.
  const isSuspect = lengths !== undefined && coding !== undefined;
  const words = connection
    .toLowerCase()
    .split(',')
    .map((word) => word.trim());
  const wants = minor === 1 ? !words.includes('close') : words.includes('keep-alive');
  const keepsAlive = wants && !isSuspect && framing !== 'until-close';
  const seconds = /\btimeout=(\d{1,6})/i.exec(keepAlive)?.[1];
  return {
    status,
    reason,
    headers,
    framing,
    keepsAlive,
    keepAliveMs: seconds === undefined ? undefined : Number(seconds) * 1_000,
  };
}

function framingOf(
  status: number,
  method: string,
  lengths: string | undefined,
  coding: string | undefined,
): Framing {
  if (method === 'HEAD' || status === 204 || status === 304 || status < 200) return 'none';
  if (coding !== undefined) {
    if (coding.trim().toLowerCase() !== 'chunked') {
      throw new BadResponse(`The answer is encoded as "${coding.slice(0, 40)}", which nobody asked for.`);
    }
    return 'chunked';
  }
  if (lengths === undefined) return 'until-close';
  const [length = '', ...others] = lengths.split(',').map((text) => text.trim());
  if (!/^\d{1,15}$/.test(length) || others.some((other) => other !== length)) {
    throw new BadResponse('The answer has no length that makes sense.');
  }
  return { length: Number(length) };
}
