/** One open WebSocket: bytes and notices out at the reader's pace, bytes and requests in, signs of life. */
import type { Clock } from '@torpor/engine';
import { type SocketNotice, type SocketRequest, socketRequestSchema, TorporError } from '@torpor/protocol';
import type { WebSocket } from 'ws';

const NORMAL = 1000;
/** Waiting in this process for a slow connection. */
const MAX_BUFFERED_BYTES = 1024 * 1024;
/** What came in and has not been taken yet. */
const MAX_UNREAD_BYTES = 1024 * 1024;

/** Pings in a row without an answer; one may only be late because we were busy. */
const MAX_MISSED_PONGS = 1;

export type Incoming = { readonly bytes: Uint8Array } | { readonly request: SocketRequest };

export class LiveSocket {
  readonly #socket: WebSocket;
  readonly #window: number;
  readonly #over = new AbortController();
  readonly #incoming: Incoming[] = [];
  #unreadBytes = 0;
  /** Whether we have not read for a while since the last ping. */
  #wasPaused = false;
  /** Sent and not confirmed. */
  #outstanding = 0;
  #wakeReader: () => void = () => {};
  #wakeWriter: () => void = () => {};

  constructor(socket: WebSocket, window: number | undefined) {
    this.#socket = socket;
    this.#window = window ?? Number.POSITIVE_INFINITY;
    socket.on('message', (data, isBinary) => this.#accept(data as Buffer, isBinary));
    socket.on('error', () => socket.terminate());
    socket.on('close', () => this.#finish());
  }

  /** Fires when the other side is gone, or not listened to any more. */
  get closed(): AbortSignal {
    return this.#over.signal;
  }

  /** Resolves when the reader can take more. */
  async send(bytes: Uint8Array, counted = bytes.length): Promise<void> {
    this.#outstanding += counted;
    this.#socket.send(bytes, () => this.#wakeWriter());
    while (
      !this.closed.aborted &&
      (this.#outstanding >= this.#window || this.#socket.bufferedAmount > MAX_BUFFERED_BYTES)
    ) {
      await new Promise<void>((resolve) => {
        this.#wakeWriter = resolve;
      });
    }
  }

  notice(notice: SocketNotice): void {
    if (!this.closed.aborted) this.#socket.send(JSON.stringify(notice));
  }

  /** Nothing that still comes counts: who does not close its side could otherwise go on with its input. */
  end(): void {
    this.#socket.close(NORMAL);
    // One that is not read would never hear that the other side has closed too.
    this.#socket.resume();
    this.#finish();
  }

  /** The next thing that comes in; undefined when the other side is gone. */
  async next(): Promise<Incoming | undefined> {
    while (this.#incoming.length === 0 && !this.closed.aborted) {
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve;
      });
    }
    const next = this.#incoming.shift();
    if (next !== undefined) this.#unreadBytes -= sizeOf(next);
    if (this.#unreadBytes <= MAX_UNREAD_BYTES) this.#socket.resume();
    return next;
  }

  /**
   * Gives up on a connection on which nothing arrives, not even the answer to a ping: it would hold a sandbox
   * awake for nobody. While we do not read, silence is our own doing.
   */
  async keepAlive(clock: Clock, everyMs: number, bytesRead: () => number): Promise<void> {
    let before = -1;
    let silent = 0;
    while (!this.closed.aborted) {
      silent = bytesRead() === before && !this.#wasPaused ? silent + 1 : 0;
      if (silent > MAX_MISSED_PONGS) this.#socket.terminate();
      before = bytesRead();
      this.#wasPaused = this.#socket.isPaused;
      this.#socket.ping();
      await clock.sleep(everyMs, this.closed).catch(() => {});
    }
  }

  #finish(): void {
    this.#over.abort();
    this.#wakeReader();
    this.#wakeWriter();
  }

  #accept(data: Buffer, isBinary: boolean): void {
    if (this.closed.aborted) return;
    if (isBinary) {
      this.#push({ bytes: data });
      return;
    }
    const request = parse(data.toString('utf8'));
    if (request === undefined) {
      const error = new TorporError('invalid_request', 'A text frame is not one of the requests there are.');
      this.notice({ error: error.toBody() });
      this.end();
    } else if ('received' in request) {
      this.#outstanding = Math.max(0, this.#outstanding - request.received);
      this.#wakeWriter();
    } else this.#push({ request });
  }

  #push(incoming: Incoming): void {
    this.#incoming.push(incoming);
    this.#unreadBytes += sizeOf(incoming);
    if (this.#unreadBytes > MAX_UNREAD_BYTES) {
      this.#wasPaused = true;
      this.#socket.pause();
    }
    this.#wakeReader();
  }
}

/** A request counts too: many of them fill the memory as well as bytes do. */
function sizeOf(incoming: Incoming): number {
  return 'bytes' in incoming ? incoming.bytes.length : 256;
}

function parse(text: string): SocketRequest | undefined {
  try {
    return socketRequestSchema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
