/**
 * One connection to a port of a sandbox, and the request that is under way on it. Requests are written by hand
 * and answers read by `ResponseReader`, so that everything HTTP/1.1 has can pass: trailers both ways, answers
 * before the answer, upgrades; and so that it is always known whether a request has left this process.
 */
import type { Socket } from 'node:net';
import { BadResponse } from './response-head.ts';
import { type ResponseListener, ResponseReader } from './response-reader.ts';

/** Why a request got no whole answer. */
export interface ExchangeFailure {
  readonly cause: Error;
  /** Whether anything at all of an answer came. */
  readonly answered: boolean;
}

/** Whoever has a request under way on a connection. */
export interface ExchangeListener extends ResponseListener {
  /** The connection can take more of the request's body. */
  drained(): void;
  /** There will be no more of the answer. The connection is gone. */
  broken(breakdown: ExchangeFailure): void;
}

export interface ConnectionOwner {
  /** The first answer begins to come. */
  firstByteReceived(connection: Connection): void;
  /** The answer is over and the connection free for the next request, for as long as its server waits. */
  becameIdle(connection: Connection, promisedMs: number | undefined): void;
  connectionClosed(connection: Connection): void;
}

export class Connection {
  readonly socket: Socket;
  /** What the agent asks of callers, when this connection leads to one. */
  readonly token: string | undefined;
  /** How many requests it has carried. */
  requests = 0;
  private readonly owner: ConnectionOwner;
  private readonly maxHeadBytes: number;
  private exchange: ExchangeListener | undefined;
  private reader: ResponseReader | undefined;
  private sent = false;
  private answered = false;
  private chunked = false;

  constructor(socket: Socket, token: string | undefined, maxHeadBytes: number, owner: ConnectionOwner) {
    this.socket = socket;
    this.token = token;
    this.maxHeadBytes = maxHeadBytes;
    this.owner = owner;
    socket.on('data', this.onData);
    socket.on('drain', this.onDrain);
    socket.on('end', this.onEnd);
    socket.on('error', this.onError);
    socket.on('close', this.onClose);
    // It is set only while nothing is under way.
    socket.on('timeout', () => socket.destroy());
  }

  get isUsable(): boolean {
    return !this.socket.destroyed && this.socket.writable && !this.socket.readableEnded;
  }

  /** Writes the head of a request; `head` ends with the last header's line. */
  begin(method: string, head: string, body: 'none' | 'sized' | 'chunked', listener: ExchangeListener): void {
    this.requests++;
    this.exchange = listener;
    this.reader = new ResponseReader(method, this.maxHeadBytes, listener);
    this.sent = body === 'none';
    this.answered = false;
    this.chunked = body === 'chunked';
    const framing = this.chunked ? 'Transfer-Encoding: chunked\r\n\r\n' : '\r\n';
    this.socket.write(head + framing, 'latin1');
  }

  /** A piece of the request's body. False when the next should wait for `drained`. */
  write(bytes: Buffer): boolean {
    if (!this.chunked) return this.socket.write(bytes);
    this.socket.cork();
    this.socket.write(`${bytes.length.toString(16)}\r\n`, 'latin1');
    this.socket.write(bytes);
    const more = this.socket.write('\r\n', 'latin1');
    this.socket.uncork();
    return more;
  }

  /** The request's body is over. */
  finish(trailers: readonly string[]): void {
    this.sent = true;
    if (this.chunked) {
      let text = '0\r\n';
      for (let i = 0; i < trailers.length; i += 2) text += `${trailers[i]}: ${trailers[i + 1]}\r\n`;
      this.socket.write(`${text}\r\n`, 'latin1');
    }
    this.settle();
  }

  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }

  /** Ends it in such a way that the other side knows that nobody is left here. */
  reset(): void {
    this.release();
    try {
      this.socket.resetAndDestroy();
    } catch {
      // Only TCP can be reset.
      this.socket.destroy();
    }
  }

  /** The socket is somebody else's now, who reads and closes it. */
  private detach(): void {
    this.release();
    const { socket } = this;
    socket.off('data', this.onData);
    socket.off('drain', this.onDrain);
    socket.off('end', this.onEnd);
    socket.off('error', this.onError);
  }

  private release(): void {
    this.exchange = undefined;
    this.reader = undefined;
  }

  private readonly onData = (chunk: Buffer): void => {
    const { reader } = this;
    // Bytes that nobody asked for, or that come after the end: whose answer would they be?
    if (reader === undefined) return void this.reset();
    this.answered = true;
    if (this.requests === 1) this.owner.firstByteReceived(this);
    try {
      const rest = reader.read(chunk);
      if (reader.hasSwitched) return void this.detach();
      if (rest !== undefined && this.reader === reader) return void this.reset();
    } catch (thrown) {
      return void this.break(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
    this.settle();
  };

  /** Whether both the request and its answer are over, and what comes then. */
  private settle(): void {
    const { reader } = this;
    if (reader === undefined || !reader.isOver) return;
    const kept = reader.keptFor;
    // Many programs answer before they have read the whole request, and still want the rest of it.
    if (kept !== null && !this.sent && this.isUsable) return;
    this.release();
    if (kept === null || !this.sent || !this.isUsable) return void this.socket.destroy();
    // Its reader may have been slower than the answer.
    this.socket.resume();
    this.owner.becameIdle(this, kept.promisedMs);
  }

  private readonly onDrain = (): void => this.exchange?.drained();

  private readonly onEnd = (): void => {
    const { reader } = this;
    if (reader === undefined) return void this.socket.destroy();
    try {
      reader.finish();
    } catch (thrown) {
      return void this.break(thrown as BadResponse);
    }
    this.settle();
  };

  private readonly onError = (error: Error): void => this.break(error);

  private readonly onClose = (): void => {
    if (this.reader !== undefined) this.break(new BadResponse('The connection was closed.'));
    this.owner.connectionClosed(this);
  };

  private break(cause: Error): void {
    const { exchange, answered } = this;
    this.reset();
    exchange?.broken({ cause, answered });
  }
}
