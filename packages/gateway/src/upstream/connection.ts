/**
 * One connection to a port of a sandbox, and the exchange that is under way on it. Requests are written by hand and
 * responses read by `ResponseReader`, so that everything in HTTP/1.1 can pass: trailers both ways, informational
 * responses, upgrades. It is also always known whether a request has left this process.
 */
import type { Socket } from 'node:net';
import { BadResponse } from './response-head.ts';
import { type ResponseListener, ResponseReader } from './response-reader.ts';

/** Why a request got no complete response. */
export interface ExchangeFailure {
  readonly cause: Error;
  /** Whether any byte of a response came. */
  readonly answered: boolean;
}

/** The exchange that a connection carries. */
export interface ExchangeListener extends ResponseListener {
  /** The connection can take more of the request's body. */
  drained(): void;
  /** No more of the response will come. The connection is closed. */
  broken(failure: ExchangeFailure): void;
}

export interface ConnectionOwner {
  /** The first response on this connection begins to come. */
  firstByteReceived(connection: Connection): void;
  /** The connection is free for the next request; `promisedMs` is how long its server keeps it open. */
  becameIdle(connection: Connection, promisedMs: number | undefined): void;
  connectionClosed(connection: Connection): void;
}

interface CurrentExchange {
  readonly listener: ExchangeListener;
  readonly reader: ResponseReader;
  readonly isChunked: boolean;
  isRequestSent: boolean;
  /** Whether any byte of the response came. */
  isAnswered: boolean;
}

export class Connection {
  readonly socket: Socket;
  /** The token that the agent demands, when this connection leads to an agent. */
  readonly token: string | undefined;
  readonly #owner: ConnectionOwner;
  readonly #maxHeadBytes: number;
  #requests = 0;
  /** Undefined while the connection is idle, closed or taken over. */
  #current: CurrentExchange | undefined;

  constructor(socket: Socket, token: string | undefined, maxHeadBytes: number, owner: ConnectionOwner) {
    this.socket = socket;
    this.token = token;
    this.#maxHeadBytes = maxHeadBytes;
    this.#owner = owner;
    socket.on('data', this.#onData);
    socket.on('drain', this.#onDrain);
    socket.on('end', this.#onEnd);
    socket.on('error', this.#onError);
    socket.on('close', this.#onClose);
    // The timeout is set only while the connection is idle.
    socket.on('timeout', () => socket.destroy());
  }

  /** How many requests the connection has carried. */
  get requests(): number {
    return this.#requests;
  }

  get isUsable(): boolean {
    return !this.socket.destroyed && this.socket.writable && !this.socket.readableEnded;
  }

  /** Writes the head of a request; `head` ends with the line break of its last header. */
  begin(method: string, head: string, body: 'none' | 'sized' | 'chunked', listener: ExchangeListener): void {
    const isChunked = body === 'chunked';
    this.#requests++;
    this.#current = {
      listener,
      reader: new ResponseReader(method, this.#maxHeadBytes, listener),
      isChunked,
      isRequestSent: body === 'none',
      isAnswered: false,
    };
    this.socket.write(head + (isChunked ? 'Transfer-Encoding: chunked\r\n\r\n' : '\r\n'), 'latin1');
  }

  /** Writes a piece of the request's body. False when the next piece should wait for `drained`. */
  write(bytes: Buffer): boolean {
    if (this.#current?.isChunked !== true) return this.socket.write(bytes);
    this.socket.cork();
    this.socket.write(`${bytes.length.toString(16)}\r\n`, 'latin1');
    this.socket.write(bytes);
    const more = this.socket.write('\r\n', 'latin1');
    this.socket.uncork();
    return more;
  }

  /** Ends the request's body. */
  finish(trailers: readonly string[]): void {
    const current = this.#current;
    if (current === undefined) return;
    current.isRequestSent = true;
    if (current.isChunked) {
      let text = '0\r\n';
      for (let i = 0; i < trailers.length; i += 2) text += `${trailers[i]}: ${trailers[i + 1]}\r\n`;
      this.socket.write(`${text}\r\n`, 'latin1');
    }
    this.#settle();
  }

  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }

  /** Closes the connection in such a way that the app knows that no reader is left here. */
  reset(): void {
    this.#current = undefined;
    try {
      this.socket.resetAndDestroy();
    } catch {
      // Only TCP sockets can be reset.
      this.socket.destroy();
    }
  }

  /** Leaves the socket to the tunnel, which reads and closes it. */
  #detach(): void {
    this.#current = undefined;
    const { socket } = this;
    socket.off('data', this.#onData);
    socket.off('drain', this.#onDrain);
    socket.off('end', this.#onEnd);
    socket.off('error', this.#onError);
  }

  readonly #onData = (chunk: Buffer): void => {
    const current = this.#current;
    // Unrequested bytes, or bytes after the end of a response, could be taken for the response to the next request.
    if (current === undefined) return void this.reset();
    const { reader } = current;
    current.isAnswered = true;
    if (this.#requests === 1) this.#owner.firstByteReceived(this);
    try {
      const rest = reader.read(chunk);
      if (reader.hasSwitched) return void this.#detach();
      if (rest !== undefined && this.#current === current) return void this.reset();
    } catch (thrown) {
      return void this.#break(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
    this.#settle();
  };

  /** Makes the connection idle, or closes it, once both the request and its response are over. */
  #settle(): void {
    const current = this.#current;
    if (current === undefined || !current.reader.isOver) return;
    const kept = current.reader.keptFor;
    // Many programs respond before they have read the whole request, and still want the rest of it.
    if (kept !== null && !current.isRequestSent && this.isUsable) return;
    this.#current = undefined;
    if (kept === null || !current.isRequestSent || !this.isUsable) return void this.socket.destroy();
    // A client that was slower than the app may have paused the socket.
    this.socket.resume();
    this.#owner.becameIdle(this, kept.promisedMs);
  }

  readonly #onDrain = (): void => this.#current?.listener.drained();

  readonly #onEnd = (): void => {
    const current = this.#current;
    if (current === undefined) return void this.socket.destroy();
    try {
      current.reader.finish();
    } catch (thrown) {
      return void this.#break(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
    this.#settle();
  };

  readonly #onError = (error: Error): void => this.#break(error);

  readonly #onClose = (): void => {
    if (this.#current !== undefined) this.#break(new BadResponse('The connection was closed.'));
    this.#owner.connectionClosed(this);
  };

  #break(cause: Error): void {
    const current = this.#current;
    this.reset();
    current?.listener.broken({ cause, answered: current.isAnswered });
  }
}
