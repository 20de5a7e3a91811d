/** One open WebSocket with flow control in both directions and keep-alive pings. */
import type { Clock } from '@torpor/engine';
import { type SocketNotice, type SocketRequest, socketRequestSchema, TorporError } from '@torpor/protocol';
import type { WebSocket } from 'ws';

const NORMAL = 1000;
/** Output that waits in this process for a slow connection, at most. */
const MAX_BUFFERED_BYTES = 1024 * 1024;
/** Input that has arrived and has not been read yet, at most. */
const MAX_UNREAD_BYTES = 1024 * 1024;

/** Unanswered pings in a row, at most. One answer may be late because this process was busy. */
const MAX_MISSED_PONGS = 1;

export type Incoming = { readonly bytes: Uint8Array } | { readonly request: SocketRequest };

export class LiveSocket {
  readonly #socket: WebSocket;
  readonly #window: number;
  readonly #over = new AbortController();
  readonly #incoming: Incoming[] = [];
  #unreadBytes = 0;
  /** Whether reading was paused at some time since the last ping. */
  #wasPaused = false;
  /** Bytes that were sent and not confirmed. */
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

  /** Fires when the client is gone, or when `end` was called. */
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

  /** Ignores later input: a client that does not close its side could otherwise continue to send. */
  end(): void {
    this.#socket.close(NORMAL);
    // A paused socket would never see the close frame of the client.
    this.#socket.resume();
    this.#finish();
  }

  /** The next input. Undefined when the client is gone. */
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
   * Ends a connection on which nothing arrives, not even the answer to a ping. Such a connection would keep a sandbox
   * awake for no client. While this side has paused reading, missing answers do not count.
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
      const error = new TorporError('invalid_request', 'A text frame is not a known request.');
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

/** Requests count too, because many of them use memory as bytes do. */
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
