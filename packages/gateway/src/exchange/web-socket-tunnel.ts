/**
 * A WebSocket between a client and an app: bytes as they come, both ways. It follows the frames only to know where
 * a word of its own can be put in: when the sandbox goes to sleep, the client is told to come back.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '@torpor/engine';
import type { ActiveExchange } from '../gate/exchange.ts';
import type { SandboxGate } from '../gate/sandbox-gate.ts';
import { CLIENT_LEFT, COME_BACK, FrameCursor } from './web-socket-frames.ts';

export interface TunnelParts {
  readonly clock: Clock;
  readonly door: SandboxGate;
  readonly client: Duplex;
  readonly upstream: Socket;
}

export class WebSocketTunnel implements ActiveExchange {
  private readonly parts: TunnelParts;
  private readonly toClient = new FrameCursor();
  private readonly toApp = new FrameCursor();
  private state: 'open' | 'leaving' | 'left' | 'over' = 'open';

  constructor(parts: TunnelParts) {
    this.parts = parts;
  }

  /** `early` are bytes that came before it was known whose they are. */
  start(early: { readonly fromClient: Buffer; readonly fromApp: Buffer }): void {
    const { client, upstream, door } = this.parts;
    client.on('data', this.onClientData);
    upstream.on('data', this.onAppData);
    client.on('drain', () => upstream.resume());
    upstream.on('drain', () => client.resume());
    client.on('end', () => upstream.end());
    upstream.on('end', () => client.end());
    client.on('error', () => resetSocket(upstream));
    upstream.on('error', this.onAppError);
    client.on('close', () => this.over());
    upstream.on('close', () => this.over());
    if (early.fromClient.length > 0) this.onClientData(early.fromClient);
    if (early.fromApp.length > 0) this.onAppData(early.fromApp);
    client.resume();
    upstream.resume();
    door.bytesMoved();
    door.exchangeStarted(this);
  }

  /** Nobody waits for somebody who only listens, or has said goodbye. */
  isQuiet(): boolean {
    return this.state === 'left' || this.state === 'over';
  }

  /** Says goodbye as soon as the frame that is under way has passed. */
  askToEnd(): void {
    if (this.state !== 'open') return;
    this.state = 'leaving';
    if (this.toClient.isBetweenFrames) this.sayGoodbye();
  }

  cut(): void {
    this.askToEnd();
    // In the middle of a frame there is no place for a word.
    if (this.state === 'leaving') this.parts.client.destroy();
    resetSocket(this.parts.upstream);
  }

  private readonly onClientData = (chunk: Buffer): void => {
    if (this.state === 'left' || this.state === 'over') return;
    this.parts.door.bytesMoved();
    this.toApp.follow(chunk, false);
    if (!this.parts.upstream.write(chunk)) this.parts.client.pause();
  };

  private readonly onAppData = (chunk: Buffer): void => {
    if (this.state === 'left' || this.state === 'over') return;
    this.parts.door.bytesMoved();
    const isLeaving = this.state === 'leaving';
    const followed = this.toClient.follow(chunk, isLeaving);
    const bytes = followed === chunk.length ? chunk : chunk.subarray(0, followed);
    if (!this.parts.client.write(bytes)) this.parts.upstream.pause();
    if (isLeaving && this.toClient.isBetweenFrames) this.sayGoodbye();
  };

  private readonly onAppError = (): void => {
    // A sandbox that falls asleep may reset its connections before it is our turn.
    if (this.parts.door.isClosed) this.askToEnd();
    if (this.state !== 'left') this.parts.client.destroy();
  };

  private sayGoodbye(): void {
    const { client, upstream, clock, door } = this.parts;
    this.state = 'left';
    client.end(COME_BACK);
    if (this.toApp.isBetweenFrames) upstream.end(CLIENT_LEFT);
    else upstream.end();
    // What still comes is read to its end and goes nowhere.
    client.resume();
    upstream.resume();
    const gone = new AbortController();
    client.once('close', () => gone.abort());
    clock.sleep(door.settings.goodbyeMs, gone.signal).then(
      () => client.destroy(),
      () => {},
    );
    door.exchangeChanged();
  }

  private over(): void {
    const { client, upstream, door } = this.parts;
    if (client.destroyed && !upstream.destroyed) resetSocket(upstream);
    // The client has nobody to talk to any more; what it has not been sent yet still goes out.
    if (upstream.destroyed && !client.destroyed && this.state !== 'left') client.end(() => client.destroy());
    if (!client.destroyed || !upstream.destroyed || this.state === 'over') return;
    this.state = 'over';
    door.exchangeEnded(this);
  }
}

/** Only TCP can be reset. */
function resetSocket(socket: Socket): void {
  try {
    socket.resetAndDestroy();
  } catch {
    socket.destroy();
  }
}
