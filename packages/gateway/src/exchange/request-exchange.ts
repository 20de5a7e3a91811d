/**
 * One request on its way through a gate: queued, dispatched, answered. Bytes move in both directions only as fast as
 * the slower side takes them. A regular end on one side becomes an end on the other side, a broken connection a broken one.
 */
import type { Socket } from 'node:net';
import type { Clock } from '@torpor/engine';
import type { TorporError } from '@torpor/protocol';
import type { ActiveExchange, Exchange, ExchangeGate } from '../gate/exchange.ts';
import {
  abortResponse,
  type BodyKind,
  bodyKindOf,
  type ClientRequest,
  type ClientResponse,
  isBrokenOff,
  isHttp2,
  writeInformational,
} from '../response/client-http.ts';
import type { Connection, ExchangeFailure, ExchangeListener } from '../upstream/connection.ts';
import { BadResponse, type Framing, type ResponseHead } from '../upstream/response-head.ts';
import { EXCHANGE_TRANSITIONS, type ExchangeEvent, type ExchangeMode } from './exchange-mode.ts';
import { requestTrailers, responseTrailers } from './trailers.ts';

export interface RequestExchangeParts {
  readonly clock: Clock;
  readonly gate: ExchangeGate;
  readonly port: number;
  readonly request: ClientRequest;
  readonly response: ClientResponse;
  readonly method: string;
  /** The head of the request as it is dispatched; every line ends with a line break. */
  readonly head: (connection: Connection) => string;
  readonly expectsContinue: boolean;
  /** The headers of the response for the client; names and values alternate. */
  readonly responseHeaders: (raw: readonly string[], isChunked: boolean) => string[];
  readonly countsAsUse: boolean;
  /** The request has to wait; the creator of the exchange bounds how long. */
  readonly onQueued: (exchange: RequestExchange) => void;
  /** Sends the gateway's own response; nothing was sent to the client before. */
  readonly refuse: (error: TorporError) => void;
  /** Takes the connection over when the app has switched protocols; absent when the client did not ask for that. */
  readonly switched?: (head: ResponseHead, upstream: Socket, rest: Buffer) => void;
  /** Absent: every response goes to the client. */
  readonly handBack?: HandBack;
}

/** A response may say that its sender did not take the request, so that the request can be dispatched elsewhere. */
export interface HandBack {
  /** The part of the body that an earlier exchange has read. */
  readonly given: readonly Buffer[];
  /** The body is kept up to this size, so that it can be sent again. */
  readonly keptBytes: number;
  /** Whether the sender of this response has not taken the request. The response is dropped then. */
  isRefusal(head: ResponseHead): boolean;
  /** `body`: what was read of the body; undefined when it was more than `keptBytes`. The request is paused. */
  handedBack(head: ResponseHead, body: readonly Buffer[] | undefined): void;
}

/** Reads change nothing, so the gateway may send them again when a reused connection turns out to be dead. */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** After this many dead connections the app is at fault. */
const MAX_REPEATS = 3;
/** Copying up to this many bytes is cheaper than a second system call. */
const MAX_BUFFERED_BYTES = 16 * 1024;
/** How long the rest of a request is still read after its response is over. */
const LINGER_MS = 2_000;

export class RequestExchange implements Exchange, ActiveExchange, ExchangeListener {
  readonly queuedBytes: number;
  readonly countsAsUse: boolean;
  readonly #parts: RequestExchangeParts;
  readonly #body: BodyKind;
  #mode: ExchangeMode = 'queued';
  #connection: Connection | undefined;
  #movedAt = 0;
  #repeats = 0;
  /** The first piece of the response body, while it waits with the head. */
  #first: Buffer | undefined;
  /** The next three are independent of the mode: a request may be sent while its response comes. */
  #isContinueSent = false;
  #isRequestSent = false;
  #isClientBlocked = false;
  /** The body that was sent, while it may have to be sent again. */
  #sentBody: Buffer[] | undefined;
  #sentBytes = 0;

  constructor(parts: RequestExchangeParts) {
    this.#parts = parts;
    this.countsAsUse = parts.countsAsUse;
    this.#body = bodyKindOf(parts.request);
    this.queuedBytes = queuedBytesOf(parts.request, this.#body);
    parts.response.on('close', this.#onClientClosed);
  }

  /** Submits the exchange to the gate. The exchange may be over when this returns. */
  start(): void {
    const { gate, port, onQueued: held } = this.#parts;
    gate.submit(port, this);
    if (this.#mode === 'queued') held(this);
  }

  /** Takes the exchange out of its queue. False when the exchange is in none. */
  withdraw(): boolean {
    if (this.#mode !== 'queued') return false;
    const { gate, port } = this.#parts;
    this.#setMode('left_queue');
    return gate.withdraw(port, this);
  }

  dispatch(connection: Connection): void {
    const { gate, method, head, clock } = this.#parts;
    this.#connection = connection;
    this.#movedAt = clock.monotonic();
    this.#setMode('dispatched');
    gate.exchangeStarted(this);
    connection.begin(method, head(connection), this.#body, this);
    if (this.#body !== 'none') this.#sendBody(connection);
  }

  refuse(error: TorporError): void {
    this.#setMode('left_queue');
    this.#parts.refuse(error);
  }

  isQuiet(now: number): boolean {
    const hasBegun = this.#isResponding || this.#mode === 'lingering';
    return hasBegun && now - this.#movedAt > this.#parts.gate.settings.drainQuietMs;
  }

  /** A plain request has no way to ask its app for an early end. */
  askToEnd(): void {}

  abort(): void {
    if (this.#mode === 'queued' || this.#mode === 'over') return;
    this.#connection?.reset();
    if (this.#mode === 'lingering') this.#finish();
    else this.#fail(this.#parts.gate.cutError());
  }

  info({ status, headers }: ResponseHead): void {
    const { request, response, expectsContinue, responseHeaders } = this.#parts;
    if (this.#mode !== 'sent') return;
    this.#moved();
    if (request.httpVersion === '1.0' || response.headersSent) return;
    if (status !== 100) {
      writeInformational(response, status, responseHeaders(headers, false));
    } else if (expectsContinue && !this.#isContinueSent) {
      this.#isContinueSent = true;
      response.writeContinue();
    }
  }

  head(head: ResponseHead, framing: Framing): void {
    const { response, responseHeaders, handBack } = this.#parts;
    if (this.#mode !== 'sent') return;
    if (handBack?.isRefusal(head) === true) return void this.#handBack(handBack, head);
    const { status, reason, headers } = head;
    this.#sentBody = undefined;
    this.#setMode('response_began');
    this.#moved();
    const isChunked = framing === 'chunked' || framing === 'until-close';
    const passedOn = responseHeaders(headers, isChunked);
    if (this.#closesClientConnection()) passedOn.push('Connection', 'close');
    try {
      if ('stream' in response) response.writeHead(status, passedOn);
      else response.writeHead(status, reason, passedOn);
    } catch (cause) {
      // A header has bytes that HTTP does not allow.
      throw new BadResponse('The head of the answer cannot be passed on.', { cause });
    }
    // A body that has not come together with the head must not delay the head.
    queueMicrotask(() => this.#flush());
  }

  data(bytes: Buffer): void {
    if (!this.#isResponding) return;
    this.#moved();
    if (this.#buffers(bytes)) return;
    this.#flush();
    if (this.#parts.response.write(bytes) || this.#isClientBlocked) return;
    this.#isClientBlocked = true;
    this.#connection?.pause();
    this.#parts.response.once('drain', this.#onClientDrained);
  }

  end(trailers: readonly string[]): void {
    if (!this.#isResponding) return;
    const { response } = this.#parts;
    const first = this.#first;
    // Throws when a trailer has bytes that HTTP does not allow. The response is not over then.
    if (trailers.length > 0) response.addTrailers(responseTrailers(trailers));
    this.#setMode('response_ended');
    if (first === undefined) response.end();
    else response.end(first.toString('latin1'), 'latin1');
    if (this.#body === 'none' || this.#isRequestSent) this.#finish();
    else this.#linger();
  }

  switched(head: ResponseHead, rest: Buffer): void {
    const { switched, gate, port } = this.#parts;
    this.#sentBody = undefined;
    const socket = this.#connection?.socket;
    if (this.#mode !== 'sent' || switched === undefined || socket === undefined) {
      socket?.destroy();
      const cause = new BadResponse('The app switched protocols, and the client did not ask for it.');
      return void this.#fail(gate.brokenError(port, cause));
    }
    this.#setMode('response_began');
    this.#moved();
    switched(head, socket, rest);
    this.#finish();
  }

  drained(): void {
    this.#parts.request.resume();
  }

  broken({ cause, answered }: ExchangeFailure): void {
    const { gate, port, method } = this.#parts;
    if (this.#mode === 'over') return;
    if (this.#mode === 'lingering') return void this.#finish();
    const wasDead = (this.#connection?.requests ?? 0) > 1 && !answered && this.#mode === 'sent';
    if (wasDead && this.#body === 'none' && REPEATABLE.has(method) && this.#repeats < MAX_REPEATS) {
      return void this.#requeue();
    }
    this.#fail(gate.brokenError(port, cause));
  }

  /** Whether the response has begun and is not over. */
  get #isResponding(): boolean {
    return this.#mode === 'head_buffered' || this.#mode === 'streaming';
  }

  /**
   * Most responses are small and come whole. Their body waits for their end, which comes at once if at all: Node makes
   * one buffer, and one system call, of a head and a body that is given as text.
   */
  #buffers(bytes: Buffer): boolean {
    if (this.#mode !== 'head_buffered' || this.#first !== undefined || bytes.length > MAX_BUFFERED_BYTES)
      return false;
    this.#first = bytes;
    return true;
  }

  #flush(): void {
    const { response } = this.#parts;
    if (this.#mode !== 'head_buffered' || response.destroyed) return;
    this.#setMode('flushed');
    if (this.#first === undefined) response.flushHeaders();
    else response.write(this.#first);
    this.#first = undefined;
  }

  /** The app closed a kept connection just when it was used again: the app has read nothing of the request. */
  #requeue(): void {
    const { gate, port, onQueued: held } = this.#parts;
    this.#repeats++;
    this.#connection = undefined;
    this.#setMode('requeued');
    gate.resubmit(port, this);
    gate.exchangeEnded(this);
    if (this.#isQueued()) held(this);
  }

  /** A function, because the compiler does not see that a call into the gate changes the mode. */
  #isQueued(): boolean {
    return this.#mode === 'queued';
  }

  #sendBody(connection: Connection): void {
    const { request, handBack } = this.#parts;
    if (handBack !== undefined) {
      this.#sentBody = [];
      this.#sentBytes = 0;
      for (const chunk of handBack.given) this.#sendPiece(connection, chunk);
    }
    if (request.readableEnded) return void this.#endBody();
    request.on('data', this.#onBodyData);
    request.on('end', this.#endBody);
    request.resume();
  }

  #sendPiece(connection: Connection, chunk: Buffer): void {
    this.#moved();
    this.#keepForHandBack(chunk);
    if (!connection.write(chunk)) this.#parts.request.pause();
  }

  #keepForHandBack(chunk: Buffer): void {
    if (this.#sentBody === undefined) return;
    this.#sentBytes += chunk.length;
    if (this.#sentBytes > (this.#parts.handBack?.keptBytes ?? 0)) this.#sentBody = undefined;
    else this.#sentBody.push(chunk);
  }

  /** The sender of the response has not taken the request: another exchange continues with the request. */
  #handBack(handBack: HandBack, head: ResponseHead): void {
    const { request, response } = this.#parts;
    const body = this.#body === 'none' ? [] : this.#sentBody;
    request.pause();
    request.off('data', this.#onBodyData);
    request.off('end', this.#endBody);
    response.off('close', this.#onClientClosed);
    this.#connection?.reset();
    this.#finish();
    handBack.handedBack(head, body);
  }

  readonly #onBodyData = (chunk: Buffer): void => {
    if (this.#connection !== undefined) this.#sendPiece(this.#connection, chunk);
  };

  readonly #endBody = (): void => {
    const { request } = this.#parts;
    if (this.#connection === undefined || isBrokenOff(request)) return;
    this.#isRequestSent = true;
    this.#connection.finish(requestTrailers(request.rawTrailers));
  };

  #moved(): void {
    this.#movedAt = this.#parts.clock.monotonic();
    if (this.countsAsUse) this.#parts.gate.bytesMoved();
  }

  /**
   * Whether the client's connection ends with this response: when the server stops, and when an app responds without
   * having asked for the body that the client offered. The client may send that body or not.
   */
  #closesClientConnection(): boolean {
    const { request, expectsContinue, gate } = this.#parts;
    if (isHttp2(request)) return false;
    return gate.isStopping || (expectsContinue && !this.#isContinueSent && !request.complete);
  }

  /** Reads the rest of the request for a while, so that the client gets to read the response. */
  #linger(): void {
    const { request, response, clock } = this.#parts;
    const done = new AbortController();
    const end = () => {
      done.abort();
      // The app still waits for a body that will not come.
      if (!this.#isRequestSent) this.#connection?.reset();
      this.#finish();
    };
    request.once('end', end);
    request.once('close', end);
    clock.sleep(LINGER_MS, done.signal).then(
      () => {
        this.#connection?.reset();
        if (!request.complete) abortResponse(response);
        this.#finish();
      },
      () => {},
    );
  }

  #fail(error: TorporError): void {
    const { response, refuse } = this.#parts;
    const hasBegun = response.headersSent;
    this.#finish();
    if (hasBegun) abortResponse(response);
    else refuse(error);
  }

  #finish(): void {
    if (this.#mode === 'over') return;
    this.#connection = undefined;
    this.#setMode('finished');
    this.#parts.gate.exchangeEnded(this);
  }

  /** The only place that changes the mode. A request in `sent` waits for the app, and so keeps the sandbox awake. */
  #setMode(event: ExchangeEvent): void {
    const before = this.#mode;
    this.#mode = EXCHANGE_TRANSITIONS[before][event] ?? before;
    if (!this.countsAsUse || this.#mode === before) return;
    if (this.#mode === 'sent') this.#parts.gate.awaitingResponse(1);
    if (before === 'sent') this.#parts.gate.awaitingResponse(-1);
  }

  readonly #onClientDrained = (): void => {
    this.#isClientBlocked = false;
    this.#connection?.resume();
  };

  /** The client has left, or has its response. */
  readonly #onClientClosed = (): void => {
    if (this.#mode === 'queued') {
      this.withdraw();
      return;
    }
    if (this.#mode === 'over' || this.#mode === 'lingering') return;
    const connection = this.#connection;
    this.#finish();
    connection?.reset();
  };
}

/** What a request keeps in memory while it waits: its head, and the part of its body that Node reads ahead. */
function queuedBytesOf(request: ClientRequest, body: BodyKind): number {
  let bytes = 1_024;
  for (const text of request.rawHeaders) bytes += text.length;
  return body === 'none' ? bytes : bytes + request.readableHighWaterMark;
}
