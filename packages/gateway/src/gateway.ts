/**
 * The gateway: finds the sandbox that a request is for, sees who may come in, and lets it through the sandbox's
 * door, which wakes what sleeps behind it. Start reading here, then `visit.ts` and `door/door.ts`.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock, Ids, TrafficGate } from '@torpor/engine';
import { type RequestId, type SandboxId, TorporError } from '@torpor/protocol';
import type { CheckSignature } from './access/signed-file.ts';
import { Tokens } from './access/tokens.ts';
import { PipelineOrder } from './exchange/pipeline-order.ts';
import { responseOn } from './exchange/web-socket-upgrade.ts';
import { serverStopping } from './gate/refusals.ts';
import type { GateObserver } from './gate/sandbox-gate.ts';
import { SandboxGates } from './gate/sandbox-gates.ts';
import {
  handlePreviewRequest,
  type Keys,
  type PreviewRequest,
  type PreviewRequestParts,
} from './preview-request.ts';
import { type ClientRequest, type ClientResponse, isHttp2 } from './response/client-http.ts';
import { GatewayResponses, previewHost } from './response/gateway-responses.ts';
import { type PreviewRoute, type Route, routeOf } from './route/route.ts';
import type { Sandboxes } from './sandboxes.ts';
import type { GatewaySettings } from './settings.ts';

export interface GatewayObserver extends GateObserver {
  /** A request that was for a sandbox, however it ends. */
  previewRequested(route: PreviewRoute): void;
  refused(route: PreviewRoute | undefined, error: TorporError, requestId: RequestId): void;
}

export interface GatewayParts {
  readonly sandboxes: Sandboxes;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'next'>;
  readonly randomBytes: (n: number) => Uint8Array;
  readonly settings: GatewaySettings;
  /** The server's secret, from which tokens are made. */
  readonly secret: Uint8Array;
  readonly checkSignature: CheckSignature;
  readonly observe: GatewayObserver;
}

/** Under which name previews are found; known when the server listens. */
export interface PublicAddress {
  /** May have a port. */
  readonly domain: string;
  readonly scheme: 'http' | 'https';
}

export class Gateway {
  readonly gate: TrafficGate;
  readonly tokens: Tokens;
  private readonly parts: GatewayParts;
  private readonly doors: SandboxGates;
  private readonly answers: GatewayResponses;
  private readonly visits: PreviewRequestParts;
  private readonly turns = new PipelineOrder();
  private place: PublicAddress = { domain: 'sbx.localhost', scheme: 'http' };
  private domainName = 'sbx.localhost';
  private isStopping = false;

  constructor(parts: GatewayParts) {
    this.parts = parts;
    const { sandboxes, keys, clock, settings, observe } = parts;
    this.doors = new SandboxGates({ sandboxes, clock, settings, observe });
    this.gate = this.doors;
    this.tokens = new Tokens(parts);
    this.answers = new GatewayResponses({
      nextRequestId: () => parts.ids.next('req'),
      previewUrl: ({ sandboxId, port }) => this.urlOf(sandboxId, port),
    });
    this.visits = {
      sandboxes,
      keys,
      clock,
      settings,
      doors: this.doors,
      tokens: this.tokens,
      checkSignature: parts.checkSignature,
      answers: this.answers,
      domain: () => this.place.domain,
      refused: (route, error, requestId) => observe.refused(route, error, requestId),
    };
  }

  /** How many requests are held. */
  get held(): number {
    return this.doors.held;
  }

  /** To be called before the first request. */
  setPublicAddress(place: PublicAddress): void {
    this.place = place;
    this.domainName = place.domain.replace(/:\d+$/, '').toLowerCase();
  }

  /** Under which previews are found; with its port. */
  get domain(): string {
    return this.place.domain;
  }

  urlOf(sandboxId: SandboxId, port: number): string {
    return `${this.place.scheme}://${previewHost({ sandboxId, port }, this.place.domain)}`;
  }

  /** A token that lets one browser in, once; good for the usual time unless another is given. */
  link(sandboxId: SandboxId, seconds?: number): { readonly token: string; readonly expiresAt: number } {
    const { linkMs } = this.parts.settings;
    return this.tokens.link(sandboxId, seconds === undefined ? linkMs : seconds * 1_000);
  }

  /** False when the request is for the API. `expectsContinue`: the client waits for a word before its body. */
  handle(request: ClientRequest, response: ClientResponse, expectsContinue = false): boolean {
    const route = this.route(request);
    if (route.to === 'api') return false;
    void this.take(route, { request, response, expectsContinue, upgrade: undefined });
    return true;
  }

  /** Takes a request that somebody else found the sandbox of; its head names neither sandbox nor port. */
  pass(sandboxId: SandboxId, port: number, request: ClientRequest, response: ClientResponse): void {
    const named = { sandboxId, port, by: 'headers', dialect: 'e2b', path: request.url ?? '/' } as const;
    void this.take(
      { to: 'preview', ...named },
      { request, response, expectsContinue: false, upgrade: undefined },
    );
  }

  /** The same as `handle` for a request that wants to become a WebSocket. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
    const route = this.route(request);
    if (route.to === 'api') return false;
    const response = responseOn(request, socket);
    void this.take(route, { request, response, expectsContinue: false, upgrade: { socket, head } });
    return true;
  }

  /** Whether a request is none of the API's. */
  takes(request: IncomingMessage): boolean {
    return this.route(request).to !== 'api';
  }

  /** Lets nobody in any more and waits for those inside until the signal fires. */
  async stop(signal: AbortSignal): Promise<void> {
    this.isStopping = true;
    await this.doors.stop(signal);
  }

  private route(request: ClientRequest): Route {
    const { method = 'GET', url: target = '/', rawHeaders } = request;
    const authority = isHttp2(request) ? request.authority || undefined : undefined;
    return routeOf({ method, target, rawHeaders, authority }, this.domainName);
  }

  private async take(
    route: Exclude<Route, { to: 'api' }>,
    visit: Omit<PreviewRequest, 'route'>,
  ): Promise<void> {
    const { request, response } = visit;
    const { observe } = this.parts;
    if (!isHttp2(request)) {
      const turn = this.turns.take(request.socket, response as ServerResponse);
      if (turn !== undefined) await turn;
      // Of what it sent ahead, nothing is done for a client that has left.
      if (request.socket.destroyed) return;
    }
    if (route.to === 'refused') {
      const error = new TorporError('invalid_request', route.why, {
        hint: 'Previews are at <port>-<id>.<domain>.',
      });
      const requestId = this.answers.refuse(request, response, undefined, error, route.status);
      observe.refused(undefined, error, requestId);
      return;
    }
    observe.previewRequested(route);
    if (this.isStopping) this.answers.refuse(request, response, route, serverStopping());
    else await handlePreviewRequest(this.visits, { ...visit, route });
  }
}
