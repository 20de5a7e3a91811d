/**
 * A WebSocket between a client and an app: bytes are passed on as they come, both ways. The tunnel follows the frames
 * only to know where it may insert a close frame: when the sandbox is paused, the client is told to come back.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '@torpor/engine';
import type { ActiveExchange, ExchangeGate } from '../gate/exchange.ts';
import { CLIENT_LEFT, COME_BACK, FrameCursor } from './web-socket-frames.ts';

export interface TunnelParts {
  readonly clock: Clock;
  readonly gate: ExchangeGate;
  readonly client: Duplex;
  readonly upstream: Socket;
}

type TunnelMode =
  | 'open'
  /** The tunnel is to end as soon as the frame that is on its way to the client has passed. */
  | 'ending'
  /** Both sides were sent a close frame. Bytes that still come are read and dropped. */
  | 'close_sent'
  /** Both sockets are closed. */
  | 'over';

type TunnelEvent =
  /** A pause begins, or the app's connection broke during one. */
  'asked_to_end' | 'close_frame_sent' | 'sockets_closed';

/** Events that the table does not list are ignored. */
const TRANSITIONS: Readonly<Record<TunnelMode, Readonly<Partial<Record<TunnelEvent, TunnelMode>>>>> = {
  open: { asked_to_end: 'ending', sockets_closed: 'over' },
  ending: { close_frame_sent: 'close_sent', sockets_closed: 'over' },
  close_sent: { sockets_closed: 'over' },
  over: {},
};

export class WebSocketTunnel implements ActiveExchange {
  readonly #parts: TunnelParts;
  readonly #toClient = new FrameCursor();
  readonly #toApp = new FrameCursor();
  #mode: TunnelMode = 'open';

  constructor(parts: TunnelParts) {
    this.#parts = parts;
  }

  /** `early` are bytes that came together with the handshake. */
  start(early: { readonly fromClient: Buffer; readonly fromApp: Buffer }): void {
    const { client, upstream, gate } = this.#parts;
    client.on('data', this.#onClientData);
    upstream.on('data', this.#onAppData);
    client.on('drain', () => upstream.resume());
    upstream.on('drain', () => client.resume());
    client.on('end', () => upstream.end());
    upstream.on('end', () => client.end());
    client.on('error', () => resetSocket(upstream));
    upstream.on('error', this.#onAppError);
    client.on('close', this.#onSocketClosed);
    upstream.on('close', this.#onSocketClosed);
    if (early.fromClient.length > 0) this.#onClientData(early.fromClient);
    if (early.fromApp.length > 0) this.#onAppData(early.fromApp);
    client.resume();
    upstream.resume();
    gate.bytesMoved();
    gate.exchangeStarted(this);
  }

  /** A pause waits until the client has its close frame. */
  isQuiet(): boolean {
    return this.#isClosed;
  }

  askToEnd(): void {
    if (this.#mode !== 'open') return;
    this.#setMode('asked_to_end');
    if (this.#toClient.isBetweenFrames) this.#sendCloseFrames();
  }

  abort(): void {
    this.askToEnd();
    // A close frame cannot be inserted in the middle of another frame.
    if (this.#mode === 'ending') this.#parts.client.destroy();
    resetSocket(this.#parts.upstream);
  }

  get #isClosed(): boolean {
    return this.#mode === 'close_sent' || this.#mode === 'over';
  }

  readonly #onClientData = (chunk: Buffer): void => {
    if (this.#isClosed) return;
    this.#parts.gate.bytesMoved();
    this.#toApp.follow(chunk, false);
    if (!this.#parts.upstream.write(chunk)) this.#parts.client.pause();
  };

  readonly #onAppData = (chunk: Buffer): void => {
    if (this.#isClosed) return;
    this.#parts.gate.bytesMoved();
    const isEnding = this.#mode === 'ending';
    const followed = this.#toClient.follow(chunk, isEnding);
    const bytes = followed === chunk.length ? chunk : chunk.subarray(0, followed);
    if (!this.#parts.client.write(bytes)) this.#parts.upstream.pause();
    if (isEnding && this.#toClient.isBetweenFrames) this.#sendCloseFrames();
  };

  readonly #onAppError = (): void => {
    // A sandbox that is paused may reset its connections before the gate aborts the exchanges.
    if (this.#parts.gate.isClosed) this.askToEnd();
    if (this.#mode !== 'close_sent') this.#parts.client.destroy();
  };

  #sendCloseFrames(): void {
    const { client, upstream, clock, gate } = this.#parts;
    this.#setMode('close_frame_sent');
    client.end(COME_BACK);
    if (this.#toApp.isBetweenFrames) upstream.end(CLIENT_LEFT);
    else upstream.end();
    // Unread bytes would keep the sockets from closing.
    client.resume();
    upstream.resume();
    const closed = new AbortController();
    client.once('close', () => closed.abort());
    clock.sleep(gate.settings.goodbyeMs, closed.signal).then(
      () => client.destroy(),
      () => {},
    );
    gate.exchangeChanged();
  }

  readonly #onSocketClosed = (): void => {
    const { client, upstream, gate } = this.#parts;
    if (client.destroyed && !upstream.destroyed) resetSocket(upstream);
    // The app is gone. Bytes that the client has not been sent yet still go out.
    if (upstream.destroyed && !client.destroyed && this.#mode !== 'close_sent')
      client.end(() => client.destroy());
    if (!client.destroyed || !upstream.destroyed || this.#mode === 'over') return;
    this.#setMode('sockets_closed');
    gate.exchangeEnded(this);
  };

  /** The only place that changes the mode. */
  #setMode(event: TunnelEvent): void {
    this.#mode = TRANSITIONS[this.#mode][event] ?? this.#mode;
  }
}

/** Only TCP sockets can be reset. */
function resetSocket(socket: Socket): void {
  try {
    socket.resetAndDestroy();
  } catch {
    socket.destroy();
  }
}
