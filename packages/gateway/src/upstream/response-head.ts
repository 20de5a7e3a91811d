/** Parses the head of a response, and decides how its body is framed. */

export interface ResponseHead {
  readonly status: number;
  readonly reason: string;
  /** Names and values alternate, in the order and case in which they were sent. */
  readonly headers: readonly string[];
}

/** The response is not HTTP, or broke off. */
export class BadResponse extends Error {
  override readonly name = 'BadResponse';
}

export type Framing = 'none' | 'chunked' | 'until-close' | { readonly length: number };

export interface ReadHead extends ResponseHead {
  readonly framing: Framing;
  /** Whether the app accepts another request on this connection. */
  readonly keepsAlive: boolean;
  /** How long the app promises to keep the idle connection open. */
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

/** Appends the field to `into`. Obsolete line folding is an error. */
export function parseField(line: string, into: string[]): void {
  const colon = line.indexOf(':');
  const name = line.slice(0, colon);
  if (colon < 1 || !NAME.test(name)) throw new BadResponse('A header of the answer has no name.');
  into.push(name, withoutBlanks(line, colon + 1));
}

/** HTTP allows only spaces and tabs around a value; `trim` would remove more. */
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

/** `method` is the request's: a response to HEAD has no body, whatever its headers say. */
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
  const length = lengths === undefined ? undefined : lengthOf(lengths);
  const isBodiless = status < 200 || status === 204 || status === 304;
  // The client gets no length for a response without a body, and none beside chunks.
  const shown = isBodiless || coding !== undefined ? undefined : length;
  const framing = framingOf(isBodiless || method === 'HEAD', length, coding);
  // Two framings at once, or a framing where there is no body, are used for response smuggling: the bytes that follow
  // would be taken for the next response. Such a connection is not reused.
  const isSuspect =
    coding !== undefined ? length !== undefined || isBodiless : isBodiless && (length ?? 0) > 0;
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
    headers: lengths === undefined || lengths === String(shown) ? headers : withLength(headers, shown),
    framing,
    keepsAlive,
    keepAliveMs: seconds === undefined ? undefined : Number(seconds) * 1_000,
  };
}

/** Repeated equal lengths count as one. Differing lengths, or text that is not a number, are an error for any status. */
function lengthOf(lengths: string): number {
  const [length = '', ...others] = lengths.split(',').map((text) => text.trim());
  if (!/^\d{1,15}$/.test(length) || others.some((other) => other !== length)) {
    throw new BadResponse('The answer has no length that makes sense.');
  }
  return Number(length);
}

/** The same headers with this length once, at the place of the first; or without any length. */
function withLength(headers: readonly string[], length: number | undefined): string[] {
  const others: string[] = [];
  let isSaid = length === undefined;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (name.toLowerCase() !== 'content-length') others.push(name, headers[i + 1] as string);
    else if (!isSaid) {
      others.push(name, String(length));
      isSaid = true;
    }
  }
  return others;
}

function framingOf(hasNoBody: boolean, length: number | undefined, coding: string | undefined): Framing {
  if (hasNoBody) return 'none';
  if (coding !== undefined) {
    if (coding.trim().toLowerCase() !== 'chunked') {
      throw new BadResponse(
        `The answer is encoded as "${coding.slice(0, 40)}", which the gateway did not ask for.`,
      );
    }
    return 'chunked';
  }
  return length === undefined ? 'until-close' : { length };
}
