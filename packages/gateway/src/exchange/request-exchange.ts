/**
 * One request on its way through a door: held, passed on, answered. Bytes move in both directions only as fast
 * as the slower side takes them, an end on one side is an end on the other, and a break a break.
 */
import type { Socket } from 'node:net';
import type { Clock } from '@torpor/engine';
import type { TorporError } from '@torpor/protocol';
import type { ActiveExchange, Exchange } from '../gate/exchange.ts';
import { badAppResponse, cutByPause } from '../gate/refusals.ts';
import type { SandboxGate } from '../gate/sandbox-gate.ts';
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
import { type RequestFacts, requestHead } from './request-head.ts';
import { type ResponseHeaderRules, responseHeaders } from './response-headers.ts';
import { requestTrailers, responseTrailers } from './trailers.ts';

export interface RequestExchangeParts {
  readonly clock: Clock;
  readonly door: SandboxGate;
  readonly port: number;
  readonly request: ClientRequest;
  readonly response: ClientResponse;
  readonly facts: RequestFacts;
  readonly rules: Pick<ResponseHeaderRules, 'host' | 'sharesOrigin' | 'dropsCookies'>;
  readonly isUse: boolean;
  /** Whether the agent's own token goes with it. */
  readonly withAgentToken: boolean;
  /** It has to wait; whoever made it bounds how long. */
  readonly held: (passage: RequestExchange) => void;
  /** Answers in the gateway's own words; there is no answer yet. */
  readonly refuse: (error: TorporError) => void;
  /** Takes the connection over when the app has switched protocols; absent when nobody asked it to. */
  readonly switched?: (head: ResponseHead, upstream: Socket, rest: Buffer) => void;
}

/** What may be sent again by itself when a connection turns out to be dead: reads change nothing. */
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** Connections that were dead when they were used, before it is taken for the app's doing. */
const MAX_REPEATS = 3;
/** What is worth copying to save a system call. */
const ONE_PIECE = 16 * 1024;
/** How long the rest of a request is still taken after its answer is over. */
const LINGER_MS = 2_000;

export class RequestExchange implements Exchange, ActiveExchange, ExchangeListener {
  readonly heldBytes: number;
  readonly countsAsUse: boolean;
  private readonly parts: RequestExchangeParts;
  private readonly body: BodyKind;
  private connection: Connection | undefined;
  private state: 'waiting' | 'sent' | 'answering' | 'over' = 'waiting';
  private movedAt = 0;
  private repeats = 0;
  private isFlushed = false;
  /** The first piece of the answer's body, for as long as it is kept back. */
  private first: Buffer | undefined;
  private isContinued = false;
  /** The whole request was passed on. */
  private isSent = false;
  /** The client does not take more for now. */
  private isBlocked = false;
  /** The whole answer was passed on. */
  private isEnded = false;

  constructor(parts: RequestExchangeParts) {
    this.parts = parts;
    this.countsAsUse = parts.isUse;
    this.body = bodyKindOf(parts.request);
    this.heldBytes = weightOf(parts.request, this.body);
    parts.response.on('close', this.onClientClosed);
  }

  /** Goes to the door. It may have its answer when this returns. */
  start(): void {
    const { door, port, held } = this.parts;
    door.enter(port, this);
    if (this.state === 'waiting') held(this);
  }

  /** Gives up its place in line. False when it has none. */
  leave(): boolean {
    if (this.state !== 'waiting') return false;
    const { door, port } = this.parts;
    this.state = 'over';
    return door.leave(port, this);
  }

  begin(connection: Connection): void {
    const { door, facts, clock, withAgentToken } = this.parts;
    this.state = 'sent';
    this.connection = connection;
    this.movedAt = clock.monotonic();
    door.exchangeStarted(this);
    if (this.countsAsUse) door.awaitingResponse(1);
    const head = requestHead(facts, withAgentToken ? connection.token : undefined);
    connection.begin(facts.method, head, this.body, this);
    if (this.body !== 'none') this.sendBody(connection);
  }

  refuse(error: TorporError): void {
    this.state = 'over';
    this.parts.refuse(error);
  }

  isQuiet(now: number): boolean {
    return this.state === 'answering' && now - this.movedAt > this.parts.door.settings.drainQuietMs;
  }

  /** Its answer comes when it comes. */
  askToEnd(): void {}

  cut(): void {
    if (this.state !== 'sent' && this.state !== 'answering') return;
    this.connection?.reset();
    if (this.isEnded) this.finish();
    else this.fail(cutByPause(this.parts.door.id));
  }

  info({ status, headers }: ResponseHead): void {
    const { request, response, facts, rules } = this.parts;
    if (this.state !== 'sent') return;
    this.moved();
    if (request.httpVersion === '1.0' || response.headersSent) return;
    if (status !== 100) {
      const shown = responseHeaders(headers, { ...rules, isChunked: false });
      writeInformational(response, status, shown);
    } else if (facts.expectsContinue && !this.isContinued) {
      this.isContinued = true;
      response.writeContinue();
    }
  }

  head({ status, reason, headers }: ResponseHead, framing: Framing): void {
    const { response, rules } = this.parts;
    if (this.state !== 'sent') return;
    this.answering();
    const isChunked = framing === 'chunked' || framing === 'until-close';
    const shown = responseHeaders(headers, { ...rules, isChunked });
    if (this.endsConnection()) shown.push('Connection', 'close');
    try {
      if ('stream' in response) response.writeHead(status, shown);
      else response.writeHead(status, reason, shown);
    } catch (cause) {
      // A header with bytes that must not stand in one.
      throw new BadResponse('The head of the answer cannot be passed on.', { cause });
    }
    // What has not come with the head goes out when it comes.
    queueMicrotask(() => this.flush());
  }

  data(bytes: Buffer): void {
    if (this.state !== 'answering') return;
    this.moved();
    if (this.keepsBack(bytes)) return;
    this.flush();
    if (this.parts.response.write(bytes) || this.isBlocked) return;
    this.isBlocked = true;
    this.connection?.pause();
    this.parts.response.once('drain', this.onClientDrained);
  }

  end(trailers: readonly string[]): void {
    if (this.state !== 'answering') return;
    const { response } = this.parts;
    const { first } = this;
    // Throws when there are bytes in them that must not be; the answer is not over then.
    if (trailers.length > 0) response.addTrailers(responseTrailers(trailers));
    this.isFlushed = true;
    this.isEnded = true;
    if (first === undefined) response.end();
    else response.end(first.toString('latin1'), 'latin1');
    if (this.body === 'none' || this.isSent) this.finish();
    else this.linger();
  }

  switched(head: ResponseHead, rest: Buffer): void {
    const { switched } = this.parts;
    const socket = this.connection?.socket;
    if (this.state !== 'sent' || switched === undefined || socket === undefined) {
      socket?.destroy();
      return void this.fail(
        badAppResponse(this.parts.door.id, this.parts.port, new BadResponse('It switched unasked.')),
      );
    }
    this.answering();
    switched(head, socket, rest);
    this.finish();
  }

  drained(): void {
    this.parts.request.resume();
  }

  broken({ cause, answered }: ExchangeFailure): void {
    const { door, port, facts } = this.parts;
    if (this.state === 'over') return;
    if (this.isEnded) return void this.finish();
    const wasDead = (this.connection?.requests ?? 0) > 1 && !answered && this.state === 'sent';
    if (wasDead && this.body === 'none' && REPEATABLE.has(facts.method) && this.repeats < MAX_REPEATS) {
      return void this.repeat();
    }
    // A sandbox that falls asleep may reset its connections before it is our turn.
    this.fail(door.isClosed ? cutByPause(door.id) : badAppResponse(door.id, port, cause));
  }

  /**
   * Most answers are small and come whole. Their body waits for their end, which comes at once if at all, because
   * Node makes one piece, and one system call, of a head and a body that is given as text.
   */
  private keepsBack(bytes: Buffer): boolean {
    if (this.isFlushed || this.first !== undefined || bytes.length > ONE_PIECE) return false;
    this.first = bytes;
    return true;
  }

  /** The server closed a kept connection just as it was used again: nothing of the request was read. */
  private repeat(): void {
    const { door, port, held } = this.parts;
    this.repeats++;
    this.state = 'waiting';
    this.connection = undefined;
    if (this.countsAsUse) door.awaitingResponse(-1);
    door.reenter(port, this);
    door.exchangeEnded(this);
    // A line that moves at once has changed it by now.
    if ((this.state as string) === 'waiting') held(this);
  }

  private sendBody(connection: Connection): void {
    const { request } = this.parts;
    request.on('data', (chunk: Buffer) => {
      if (this.connection !== connection) return;
      this.moved();
      if (!connection.write(chunk)) request.pause();
    });
    request.on('end', () => {
      if (this.connection !== connection || isBrokenOff(request)) return;
      this.isSent = true;
      connection.finish(requestTrailers(request.rawTrailers));
    });
  }

  private answering(): void {
    if (this.state !== 'sent') return;
    this.state = 'answering';
    if (this.countsAsUse) this.parts.door.awaitingResponse(-1);
    this.moved();
  }

  private moved(): void {
    this.movedAt = this.parts.clock.monotonic();
    if (this.countsAsUse) this.parts.door.bytesMoved();
  }

  /**
   * When the server stops; and when an app answers without having taken the body it was to be asked for, because
   * the client may send it or not.
   */
  private endsConnection(): boolean {
    const { request, facts, door } = this.parts;
    if (isHttp2(request)) return false;
    return door.isStopping || (facts.expectsContinue && !this.isContinued && !request.complete);
  }

  private flush(): void {
    const { response } = this.parts;
    if (this.isFlushed || this.state !== 'answering' || response.destroyed) return;
    this.isFlushed = true;
    if (this.first === undefined) response.flushHeaders();
    else response.write(this.first);
    this.first = undefined;
  }

  /** The answer is over and the request is not: the rest is taken for a while, so that the answer gets through. */
  private linger(): void {
    const { request, response, clock } = this.parts;
    const done = new AbortController();
    const end = () => {
      done.abort();
      // The app still waits for what will not come.
      if (!this.isSent) this.connection?.reset();
      this.finish();
    };
    request.once('end', end);
    request.once('close', end);
    clock.sleep(LINGER_MS, done.signal).then(
      () => {
        this.connection?.reset();
        if (!request.complete) abortResponse(response);
        this.finish();
      },
      () => {},
    );
  }

  private fail(error: TorporError): void {
    const { response, refuse } = this.parts;
    const isBegun = response.headersSent;
    if (this.state === 'sent' && this.countsAsUse) this.parts.door.awaitingResponse(-1);
    this.finish();
    if (isBegun) abortResponse(response);
    else refuse(error);
  }

  private finish(): void {
    if (this.state === 'over') return;
    this.state = 'over';
    this.connection = undefined;
    this.parts.door.exchangeEnded(this);
  }

  private readonly onClientDrained = (): void => {
    this.isBlocked = false;
    this.connection?.resume();
  };

  /** The client is gone, or has its answer. */
  private readonly onClientClosed = (): void => {
    if (this.state === 'waiting') {
      this.leave();
      return;
    }
    if (this.state === 'over' || this.isEnded) return;
    if (this.state === 'sent' && this.countsAsUse) this.parts.door.awaitingResponse(-1);
    const { connection } = this;
    this.finish();
    connection?.reset();
  };
}

/** What a request keeps in memory while it waits: its head, and what Node reads of its body beforehand. */
function weightOf(request: ClientRequest, body: BodyKind): number {
  let bytes = 1_024;
  for (const text of request.rawHeaders) bytes += text.length;
  return body === 'none' ? bytes : bytes + request.readableHighWaterMark;
}
