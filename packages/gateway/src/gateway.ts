/**
 * The gateway: finds the sandbox that a request is for, checks access, and passes the request through the sandbox's
 * gate, which wakes a sandbox that sleeps. Start reading here, then `preview-request.ts` and `gate/sandbox-gate.ts`.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock, Ids } from '@torpor/engine';
import { type RequestId, type SandboxId, TorporError } from '@torpor/protocol';
import type { CheckSignature } from './access/signed-file.ts';
import { Tokens, type UsedLinks } from './access/tokens.ts';
import { PipelineOrder } from './exchange/pipeline-order.ts';
import { responseOn } from './exchange/web-socket-upgrade.ts';
import { serverStopping } from './gate/refusals.ts';
import type { GateObserver } from './gate/sandbox-gate.ts';
import { SandboxGates } from './gate/sandbox-gates.ts';
import { Hop, type HopParts } from './hop/hop.ts';
import {
  handlePreviewRequest,
  type Keys,
  type PreviewRequest,
  type PreviewRequestParts,
} from './preview-request.ts';
import { type ClientRequest, type ClientResponse, isHttp2 } from './response/client-http.ts';
import { GatewayResponses, previewHost } from './response/gateway-responses.ts';
import { type PreviewRoute, type Route, routeOf } from './route/route.ts';
import type { SandboxDirectory } from './sandbox-directory.ts';
import type { GatewaySettings } from './settings.ts';

export interface GatewayObserver extends GateObserver {
  /** A request for a sandbox has come, however it ends. */
  previewRequested(route: PreviewRoute): void;
  refused(route: PreviewRoute | undefined, error: TorporError, requestId: RequestId): void;
}

export interface GatewayParts {
  readonly sandboxes: SandboxDirectory;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'next'>;
  readonly randomBytes: (n: number) => Uint8Array;
  readonly settings: GatewaySettings;
  /** The server's secret, from which tokens are derived. */
  readonly secret: Uint8Array;
  /** Absent on a server that is alone. */
  readonly usedLinks?: UsedLinks | undefined;
  readonly checkSignature: CheckSignature;
  readonly observe: GatewayObserver;
  /** Absent on a server that is alone. */
  readonly hop?: Omit<HopParts, 'clock' | 'settings'> | undefined;
}

/** The address under which previews are reached; known when the server listens. */
export interface PublicAddress {
  /** May include a port. */
  readonly domain: string;
  readonly scheme: 'http' | 'https';
}

export class Gateway {
  /** The port that the engine uses to close and open the gate of a sandbox. */
  readonly gates: SandboxGates;
  readonly tokens: Tokens;
  /** The way to other nodes. Undefined on a server that is alone. */
  readonly hop: Hop | undefined;
  readonly #parts: GatewayParts;
  readonly #responses: GatewayResponses;
  readonly #previewParts: PreviewRequestParts;
  readonly #pipelines = new PipelineOrder();
  #routed: { readonly request: ClientRequest; readonly route: Route } | undefined;
  #address: PublicAddress = { domain: 'sbx.localhost', scheme: 'http' };
  /** The domain without its port. */
  #domainName = 'sbx.localhost';

  constructor(parts: GatewayParts) {
    this.#parts = parts;
    const { sandboxes, keys, clock, settings, observe } = parts;
    this.gates = new SandboxGates({ sandboxes, clock, settings, observe });
    this.tokens = new Tokens(parts);
    this.#responses = new GatewayResponses({
      nextRequestId: () => parts.ids.next('req'),
      previewUrl: ({ sandboxId, port }) => this.urlOf(sandboxId, port),
    });
    this.hop = this.#openHop();
    const { hop } = this;
    this.#previewParts = {
      ...(hop === undefined
        ? {}
        : {
            passOnIfMoved: ({ request, response, expectsContinue, upgrade, route }) =>
              hop.passOnIfMoved(request, response, expectsContinue, upgrade, route),
          }),
      sandboxes,
      keys,
      clock,
      settings,
      gates: this.gates,
      tokens: this.tokens,
      checkSignature: parts.checkSignature,
      responses: this.#responses,
      domain: () => this.#address.domain,
      refused: (route, error, requestId) => observe.refused(route, error, requestId),
    };
  }

  /** How many requests are queued. */
  get queuedRequests(): number {
    return this.gates.queuedRequests;
  }

  /** Must be called before the first request. */
  setPublicAddress(address: PublicAddress): void {
    this.#address = address;
    this.#domainName = address.domain.replace(/:\d+$/, '').toLowerCase();
  }

  /** The preview domain, with its port. */
  get domain(): string {
    return this.#address.domain;
  }

  /** The origins of all previews, as a content security policy names them. */
  get previewOrigins(): string {
    return `${this.#address.scheme}://*.${this.#address.domain}`;
  }

  urlOf(sandboxId: SandboxId, port: number): string {
    return `${this.#address.scheme}://${previewHost({ sandboxId, port }, this.#address.domain)}`;
  }

  /** A token that gives one browser access, once; valid for `linkMs` unless `seconds` is given. */
  link(sandboxId: SandboxId, seconds?: number): { readonly token: string; readonly expiresAt: number } {
    const { linkMs } = this.#parts.settings;
    return this.tokens.link(sandboxId, seconds === undefined ? linkMs : seconds * 1_000);
  }

  /** False when the request is for the API. `expectsContinue`: the client waits for a 100 before it sends its body. */
  handle(request: ClientRequest, response: ClientResponse, expectsContinue = false): boolean {
    const route = this.#route(request);
    if (route.to === 'api') return false;
    void this.#handleRoute(route, { request, response, expectsContinue, upgrade: undefined });
    return true;
  }

  /** Takes a request whose head names neither sandbox nor port; the caller has found them otherwise. */
  handleFor(sandboxId: SandboxId, port: number, request: ClientRequest, response: ClientResponse): void {
    const path = request.url ?? '/';
    const route = { to: 'preview', sandboxId, port, by: 'headers', dialect: 'e2b', path } as const;
    const here = () =>
      void this.#handleRoute(route, { request, response, expectsContinue: false, upgrade: undefined });
    if (this.hop === undefined) here();
    else this.hop.requestFor(route, request, response, here);
  }

  /** The same as `handle` for a request that asks to become a WebSocket. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
    const route = this.#route(request);
    if (route.to === 'api') return false;
    const response = responseOn(request, socket);
    void this.#handleRoute(route, { request, response, expectsContinue: false, upgrade: { socket, head } });
    return true;
  }

  /** Refuses new requests, and waits for active exchanges until the signal fires. */
  async stop(signal: AbortSignal): Promise<void> {
    await Promise.all([this.gates.stop(signal), this.hop?.stop(signal)]);
  }

  #openHop(): Hop | undefined {
    const { hop, clock, settings } = this.#parts;
    if (hop === undefined) return undefined;
    return new Hop(
      { ...hop, clock, settings },
      {
        responses: this.#responses,
        previewRouteOf: (request) => {
          const route = this.#route(request);
          return route.to === 'preview' ? route : undefined;
        },
        isRunningHere: (sandboxId) => this.gates.findGate(sandboxId)?.run !== undefined,
      },
    );
  }

  /** The hop and the gateway route the same request, mostly one right after the other. */
  #route(request: ClientRequest): Route {
    if (this.#routed?.request === request) return this.#routed.route;
    const route = this.#routeOf(request);
    if (this.hop !== undefined) this.#routed = { request, route };
    return route;
  }

  #routeOf(request: ClientRequest): Route {
    const { method = 'GET', url: target = '/', rawHeaders } = request;
    const authority = isHttp2(request) ? request.authority || undefined : undefined;
    return routeOf({ method, target, rawHeaders, authority }, this.#domainName);
  }

  async #handleRoute(
    route: Exclude<Route, { to: 'api' }>,
    preview: Omit<PreviewRequest, 'route'>,
  ): Promise<void> {
    const { request, response } = preview;
    const { observe } = this.#parts;
    if (!isHttp2(request)) {
      const earlier = this.#pipelines.enter(request.socket, response as ServerResponse);
      if (earlier !== undefined) await earlier;
      // Pipelined requests of a client that has left are dropped.
      if (request.socket.destroyed) return;
    }
    if (route.to === 'refused') {
      const error = new TorporError('invalid_request', route.why, {
        hint: 'Previews are at <port>-<id>.<domain>.',
      });
      const requestId = this.#responses.refuse(request, response, undefined, error, route.status);
      observe.refused(undefined, error, requestId);
      return;
    }
    observe.previewRequested(route);
    if (this.gates.isStopping) this.#responses.refuse(request, response, route, serverStopping());
    else await handlePreviewRequest(this.#previewParts, { ...preview, route });
  }
}
