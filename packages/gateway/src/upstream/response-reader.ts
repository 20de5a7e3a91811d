/**
 * Reads the HTTP/1.1 responses of a program in a sandbox, piece by piece, and calls a listener for each part.
 *
 * The program may be hostile, but a connection leads to one sandbox only: a malicious response can mislead only that
 * sandbox's own clients. Two things must hold: memory is bounded, and a response that breaks off is never taken for a
 * complete one.
 */
import {
  BadResponse,
  type Framing,
  parseField,
  parseStatusLine,
  type ReadHead,
  type ResponseHead,
  readHead,
  type StatusLine,
} from './response-head.ts';

export interface ResponseListener {
  /** 1xx, but not 101. */
  info(head: ResponseHead): void;
  head(head: ResponseHead, framing: Framing): void;
  data(bytes: Buffer): void;
  end(trailers: readonly string[]): void;
  /** 101: the connection is no longer HTTP. `rest` are bytes that came together with the head. */
  switched(head: ResponseHead, rest: Buffer): void;
}

type State =
  | 'status'
  | 'fields'
  | 'sized'
  | 'chunk-size'
  | 'chunk'
  | 'chunk-end'
  | 'trailers'
  | 'until-close'
  | 'over'
  | 'switched';

const LF = 10;
const CR = 13;
const CHUNK_SIZE = /^([0-9a-f]{1,12})[ \t]*(?:;.*)?$/i;

export class ResponseReader {
  readonly #method: string;
  readonly #maxHeadBytes: number;
  readonly #listener: ResponseListener;
  #state: State = 'status';
  /** The beginning of a line without its end. */
  #partial = '';
  #headBytes = 0;
  #line: StatusLine = { minor: 1, status: 0, reason: '' };
  #fields: string[] = [];
  #left = 0;
  #answer: ReadHead | undefined;

  constructor(method: string, maxHeadBytes: number, listener: ResponseListener) {
    this.#method = method;
    this.#maxHeadBytes = maxHeadBytes;
    this.#listener = listener;
  }

  get isOver(): boolean {
    return this.#state === 'over';
  }

  get hasSwitched(): boolean {
    return this.#state === 'switched';
  }

  /** After the response: how long the app keeps the connection open; null when it must not be reused. */
  get keptFor(): { readonly promisedMs: number | undefined } | null {
    return this.isOver && this.#answer?.keepsAlive === true ? { promisedMs: this.#answer.keepAliveMs } : null;
  }

  /** Throws `BadResponse`. Returns bytes after the end of the response, which belong to no request. */
  read(chunk: Buffer): Buffer | undefined {
    let at = 0;
    while (at < chunk.length) {
      if (this.#state === 'over') return chunk.subarray(at);
      // The bytes after a protocol switch belong to the tunnel.
      if (this.#state === 'switched') return undefined;
      if (this.#state === 'sized' || this.#state === 'chunk') at = this.#readCounted(chunk, at);
      else if (this.#state === 'until-close') {
        this.#listener.data(at === 0 ? chunk : chunk.subarray(at));
        return undefined;
      } else {
        const end = chunk.indexOf(LF, at);
        const text = chunk.toString('latin1', at, end < 0 ? chunk.length : end);
        this.#countHead(text.length + 1);
        if (end < 0) {
          this.#partial += text;
          return undefined;
        }
        at = end + 1;
        const whole = this.#partial + text;
        this.#partial = '';
        this.#readLine(whole.charCodeAt(whole.length - 1) === CR ? whole.slice(0, -1) : whole, chunk, at);
      }
    }
    return undefined;
  }

  /** The app has closed its side. Throws when the response is incomplete. */
  finish(): void {
    if (this.#state === 'until-close') this.#conclude([]);
    else if (this.#state !== 'over') throw new BadResponse('The answer broke off.');
  }

  #readCounted(chunk: Buffer, at: number): number {
    const end = Math.min(chunk.length, at + this.#left);
    this.#left -= end - at;
    const bytes = at === 0 && end === chunk.length ? chunk : chunk.subarray(at, end);
    const isLast = this.#left === 0;
    const wasSized = this.#state === 'sized';
    if (isLast && !wasSized) this.#state = 'chunk-end';
    this.#listener.data(bytes);
    if (isLast && wasSized) this.#conclude([]);
    return end;
  }

  #readLine(line: string, chunk: Buffer, at: number): void {
    switch (this.#state) {
      case 'status':
        // Some programs send an extra empty line between two responses.
        if (line === '') return;
        this.#line = parseStatusLine(line);
        this.#fields = [];
        this.#state = 'fields';
        return;
      case 'fields':
        if (line === '') this.#headRead(chunk, at);
        else parseField(line, this.#fields);
        return;
      case 'chunk-size':
        this.#readChunkSize(line);
        return;
      case 'chunk-end':
        if (line !== '') throw new BadResponse('A chunk of the answer is longer than it said.');
        this.#state = 'chunk-size';
        this.#headBytes = 0;
        return;
      case 'trailers':
        if (line === '') this.#conclude(this.#fields);
        else parseField(line, this.#fields);
        return;
      default:
        throw new BadResponse('There is no line here.');
    }
  }

  #headRead(chunk: Buffer, at: number): void {
    const head = readHead(this.#line, this.#fields, this.#method);
    if (head.status === 101) {
      this.#state = 'switched';
      this.#listener.switched(head, chunk.subarray(at));
      return;
    }
    if (head.status < 200) {
      // The bytes of informational responses count towards the limit: an app could send them without end.
      this.#state = 'status';
      this.#listener.info(head);
      return;
    }
    this.#headBytes = 0;
    this.#answer = head;
    const { framing } = head;
    this.#left = typeof framing === 'object' ? framing.length : 0;
    if (framing === 'chunked') this.#state = 'chunk-size';
    else if (framing === 'until-close') this.#state = 'until-close';
    else this.#state = 'sized';
    this.#listener.head(head, framing);
    if (this.#state === 'sized' && this.#left === 0) this.#conclude([]);
  }

  #readChunkSize(line: string): void {
    const size = CHUNK_SIZE.exec(line)?.[1];
    if (size === undefined) throw new BadResponse('A chunk of the answer has no size.');
    this.#left = Number.parseInt(size, 16);
    this.#headBytes = 0;
    if (this.#left > 0) this.#state = 'chunk';
    else {
      this.#state = 'trailers';
      this.#fields = [];
    }
  }

  #conclude(trailers: readonly string[]): void {
    this.#state = 'over';
    this.#listener.end(trailers);
  }

  #countHead(bytes: number): void {
    this.#headBytes += bytes;
    if (this.#headBytes > this.#maxHeadBytes) throw new BadResponse('The head of the answer is too long.');
  }
}
