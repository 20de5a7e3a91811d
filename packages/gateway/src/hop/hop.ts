/**
 * The way of a request to the node on which its sandbox lives. The node that a client has connected to looks up the sandbox,
 * and passes the whole request on: before a route, a key or the gateway sees it. The other node answers as if the client had
 * connected to it.
 *
 * A request that was passed on is never passed on again. The node that gets it answers it, or says that the sandbox lives
 * elsewhere; then the first node looks up again, and tries once more.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock, Location } from '@torpor/engine';
import { type RequestId, type SandboxId, TorporError } from '@torpor/protocol';
import { PipelineOrder } from '../exchange/pipeline-order.ts';
import { RequestExchange } from '../exchange/request-exchange.ts';
import { openTunnel, responseOn, type Upgrade } from '../exchange/web-socket-upgrade.ts';
import { bodyKindOf, type ClientRequest, type ClientResponse, isHttp2 } from '../response/client-http.ts';
import type { GatewayResponses } from '../response/gateway-responses.ts';
import type { PreviewRoute } from '../route/route.ts';
import type { GatewaySettings } from '../settings.ts';
import { apiSandboxOf, isE2bPath } from './api-sandbox.ts';
import { hopRequestHead, hopResponseHeaders, hopResultOf } from './hop-head.ts';
import {
  HOP_HEADER,
  HOP_RESULT_HEADER,
  type HopRefusal,
  type HopSigner,
  type SignedRequest,
} from './hop-signature.ts';
import { Locations, type NodeLookup } from './locations.ts';
import { NodeConnections } from './node-connections.ts';
import { markPassedOn, originOf, passedOnBy } from './passed-on.ts';

/** What the hop reports, for metrics and logs. */
export interface HopObserver {
  passedOn(node: string): void;
  /** A request with the header of a hop was refused. */
  refusedHop(why: HopRefusal, from: string | undefined): void;
  failed(node: string | undefined, error: TorporError, requestId: RequestId): void;
}

export interface HopParts {
  readonly nodes: NodeLookup;
  readonly signer: HopSigner;
  readonly clock: Clock;
  readonly settings: GatewaySettings;
  readonly observe: HopObserver;
}

/** What the hop needs of the gateway. */
export interface HopGateway {
  readonly responses: GatewayResponses;
  /** The route of a request for a preview; undefined for every other request. */
  previewRouteOf(request: ClientRequest): PreviewRoute | undefined;
  /** Whether the gateway has an open way into the sandbox, which proves that the sandbox runs on this node. */
  isRunningHere(sandboxId: SandboxId): boolean;
}

/** A request on its way through this node. */
interface Passage {
  readonly request: ClientRequest;
  /** For an upgrade it is made when the request is passed on or refused. */
  readonly response: () => ClientResponse;
  readonly expectsContinue: boolean;
  readonly upgrade: Upgrade | undefined;
  readonly sandboxId: SandboxId;
  readonly route: PreviewRoute;
  /** Answers the request on this node. */
  readonly here: () => void;
}

/** A target is tried twice: the second time after a fresh look-up. */
const MAX_ATTEMPTS = 2;
/** Bodies up to this size can be sent again to another node. */
const KEPT_BODY_BYTES = 64 * 1024;

const REFUSALS: Readonly<Record<HopRefusal, string>> = {
  malformed: 'The header of a request between nodes is not one.',
  other_node: 'The request was meant for another node.',
  wrong_secret: 'The request claims to come from another node, and its signature is wrong.',
  wrong_time: 'The request between nodes is too old or too new: the clocks of the nodes differ.',
  repeated: 'The request between nodes was received before.',
};

export class Hop {
  readonly #parts: HopParts;
  readonly #gateway: HopGateway;
  readonly #locations: Locations;
  readonly #connections = new Map<string, NodeConnections>();
  readonly #pipelines = new PipelineOrder();
  readonly #stopping = new AbortController();

  constructor(parts: HopParts, gateway: HopGateway) {
    this.#parts = parts;
    this.#gateway = gateway;
    this.#locations = new Locations(parts.nodes, parts.clock);
  }

  /** Calls `here` unless the request is passed on or refused; at once when the request names no sandbox. */
  request(
    request: ClientRequest,
    response: ClientResponse,
    expectsContinue: boolean,
    here: () => void,
  ): void {
    this.#receive({ request, response: () => response, expectsContinue, upgrade: undefined, here });
  }

  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, here: () => void): void {
    // The client may leave during the look-up.
    socket.on('error', () => socket.destroy());
    let made: ClientResponse | undefined;
    const response = () => {
      made ??= responseOn(request, socket);
      return made;
    };
    this.#receive({ request, response, expectsContinue: false, upgrade: { socket, head }, here });
  }

  /**
   * Passes a request on whose body was read already, to the node that placement has chosen for what the request creates.
   * `body`: its bytes as they came.
   */
  passOnTo(
    to: { readonly node: string; readonly address: string },
    request: ClientRequest,
    response: ClientResponse,
    body: Buffer,
  ): void {
    const route = apiRoute(NO_SANDBOX, request);
    const passage: Passage = {
      request,
      response: () => response,
      expectsContinue: false,
      upgrade: undefined,
      sandboxId: NO_SANDBOX,
      route,
      here: () => {},
    };
    this.#send(passage, to, { attempt: MAX_ATTEMPTS, body: body.length === 0 ? [] : [body] });
  }

  /**
   * For a request that this node began to answer and that no sandbox has seen: passes it on when its sandbox lives on another
   * node by now. Resolves to false when the caller has to answer it.
   */
  async passOnIfMoved(
    request: ClientRequest,
    response: ClientResponse,
    expectsContinue: boolean,
    upgrade: Upgrade | undefined,
    route: PreviewRoute,
  ): Promise<boolean> {
    const location = await this.#locations.lookUp(route.sandboxId).catch(() => undefined);
    if (location?.is !== 'elsewhere' || response.destroyed || response.headersSent) return false;
    const { sandboxId } = route;
    const rest = { expectsContinue, upgrade, sandboxId, route, here: () => {} };
    const passage: Passage = { request, response: () => response, ...rest };
    if (passedOnBy(request) !== undefined) this.#refuseAsElsewhere(passage, location.node);
    else this.#send(passage, location, { attempt: MAX_ATTEMPTS, body: [] });
    return true;
  }

  /** The same as `request` for a request whose head does not name its sandbox; the caller has found it otherwise. */
  requestFor(route: PreviewRoute, request: ClientRequest, response: ClientResponse, here: () => void): void {
    const { sandboxId } = route;
    const rest = { expectsContinue: false, upgrade: undefined, sandboxId, route, here };
    const passage: Passage = { request, response: () => response, ...rest };
    this.#decide(passage);
  }

  /** Lets requests finish until the signal fires. */
  async stop(signal: AbortSignal): Promise<void> {
    this.#stopping.abort();
    await Promise.all([...this.#connections.values()].map((one) => one.stop(signal)));
  }

  #receive(received: Omit<Passage, 'sandboxId' | 'route'>): void {
    const { request, here } = received;
    const given = request.headers[HOP_HEADER];
    if (given !== undefined && !this.#isFromNode(received, String(given))) return;
    const preview = this.#gateway.previewRouteOf(request);
    const sandboxId = preview?.sandboxId ?? apiSandboxOf(request.url ?? '');
    if (sandboxId === undefined || this.#gateway.isRunningHere(sandboxId)) return void here();
    const passage = { ...received, sandboxId, route: preview ?? apiRoute(sandboxId, request) };
    this.#decide(passage);
  }

  /** At once where it can, because most requests follow another one to the same sandbox. */
  #decide(passage: Passage): void {
    const wasPassedOn = passedOnBy(passage.request) !== undefined;
    const earlier = this.#enterPipeline(passage);
    const known = wasPassedOn ? undefined : this.#locations.remembered(passage.sandboxId);
    if (earlier === undefined && known !== undefined) this.#continue(passage, known, FIRST);
    else {
      this.#decideLater(passage, earlier, wasPassedOn).catch((thrown: unknown) =>
        this.#refuse(passage, TorporError.from(thrown)),
      );
    }
  }

  async #decideLater(
    passage: Passage,
    earlier: Promise<void> | undefined,
    wasPassedOn: boolean,
  ): Promise<void> {
    if (earlier !== undefined) await earlier;
    const location = await this.#locations.lookUp(passage.sandboxId);
    if (passage.upgrade === undefined && hasLeft(passage.response())) return;
    if (isHere(location, wasPassedOn)) passage.here();
    else if (wasPassedOn) this.#refuseAsElsewhere(passage, location.node);
    else this.#continue(passage, location, FIRST);
  }

  #continue(passage: Passage, location: Location, sent: Sent): void {
    if (location.is === 'elsewhere') this.#send(passage, location, sent);
    else if (location.is === 'unreachable')
      this.#refuse(passage, nodeIsAway(passage.sandboxId, location), location.node);
    else if (sent.body.length === 0) passage.here();
    else {
      // The sandbox has just come here, and the body has been read already: this node passes the request on to itself.
      const { nodes } = this.#parts;
      nodes.nodeByName(nodes.self).then(
        (self) => {
          if (self === undefined) this.#refuse(passage, moving(passage.sandboxId));
          else this.#send(passage, self, sent);
        },
        (thrown: unknown) => this.#refuse(passage, TorporError.from(thrown)),
      );
    }
  }

  #send(passage: Passage, to: { readonly node: string; readonly address: string }, sent: Sent): void {
    const { clock, signer, observe } = this.#parts;
    const { request, expectsContinue, upgrade } = passage;
    const response = passage.response();
    const gate = this.#connectionsTo(to);
    const signed = signedPartOf(request);
    const { method } = signed;
    const contentLength = bodyKindOf(request) === 'chunked' ? undefined : request.headers['content-length'];
    observe.passedOn(to.node);
    const exchange = new RequestExchange({
      clock,
      gate,
      port: 0,
      request,
      response,
      method,
      head: () =>
        hopRequestHead({
          ...signed,
          rawHeaders: request.rawHeaders,
          signature: signer.sign(to.node, signed, originOf(request)),
          upgrade: upgrade !== undefined,
          expectsContinue,
          contentLength,
        }),
      expectsContinue,
      responseHeaders: hopResponseHeaders,
      countsAsUse: false,
      onQueued: () => {},
      refuse: (error) => this.#notSent(passage, to.node, sent, error),
      handBack: {
        given: sent.body,
        keptBytes: KEPT_BODY_BYTES,
        isRefusal: (head) => hopResultOf(head) !== undefined,
        handedBack: (head, body) => {
          if (hopResultOf(head) !== 'elsewhere')
            this.#refuse(passage, notBelieved(to.node, head.status), to.node);
          else if (body === undefined) this.#refuse(passage, moving(passage.sandboxId), to.node);
          else
            this.#tryAgain(passage, to.node, { attempt: sent.attempt + 1, body }, moving(passage.sandboxId));
        },
      },
      ...(upgrade === undefined
        ? {}
        : {
            switched: (head, upstream, rest) => {
              const headers = hopResponseHeaders(head.headers, false);
              openTunnel({ clock, gate, upstream }, response as ServerResponse, upgrade, headers, rest);
            },
          }),
    });
    exchange.start();
  }

  /** The request was not dispatched, or its connection broke. Only a request that never left can be sent again. */
  #notSent(passage: Passage, node: string, sent: Sent, error: TorporError): void {
    const wasSent = error.toBody().details?.['dispatched'] !== false;
    const failure = error.with({ sandboxId: passage.sandboxId });
    if (wasSent || this.#stopping.signal.aborted) this.#refuse(passage, failure, node);
    else this.#tryAgain(passage, node, { ...sent, attempt: sent.attempt + 1 }, failure);
  }

  #tryAgain(passage: Passage, node: string, next: Sent, failure: TorporError): void {
    this.#locations.forget(passage.sandboxId);
    if (next.attempt > MAX_ATTEMPTS) return void this.#refuse(passage, failure, node);
    this.#locations.lookUp(passage.sandboxId).then(
      (location) => {
        // A node that does not answer, and still is the right one, is not asked again.
        const isSame = location.is === 'elsewhere' && location.node === node && next.body.length === 0;
        if (isSame && failure.toBody().details?.['node'] === node) this.#refuse(passage, failure, node);
        else this.#continue(passage, location, next);
      },
      (thrown: unknown) => this.#refuse(passage, TorporError.from(thrown), node),
    );
  }

  /** Whether the header was written by a node that knows the cluster secret. If not, the request is refused. */
  #isFromNode(received: Omit<Passage, 'sandboxId' | 'route'>, given: string): boolean {
    const { request, response } = received;
    const by = this.#parts.signer.verify(given, signedPartOf(request));
    if (typeof by !== 'string') {
      markPassedOn(request, by);
      return true;
    }
    this.#parts.observe.refusedHop(by, by === 'wrong_secret' ? undefined : given.split(' ')[1]);
    const error = new TorporError('forbidden', REFUSALS[by], {
      hint: 'Give all nodes the same TORPOR_CLUSTER_SECRET, and set their clocks. Clients must not send this header.',
      details: { dispatched: false, why: by },
    });
    const answer = response();
    answer.setHeader(HOP_RESULT_HEADER, by);
    this.#gateway.responses.refuse(request, answer, undefined, error);
    return false;
  }

  #refuseAsElsewhere(passage: Passage, node: string): void {
    passage.response().setHeader(HOP_RESULT_HEADER, 'elsewhere');
    this.#refuse(passage, moving(passage.sandboxId), node);
  }

  #refuse({ request, response, route }: Passage, error: TorporError, node?: string): void {
    const requestId = this.#gateway.responses.refuse(request, response(), route, error);
    this.#parts.observe.failed(node, error, requestId);
  }

  /** Pipelined requests keep their order: the next one waits until the one before it is answered. */
  #enterPipeline({ request, response, upgrade }: Passage): Promise<void> | undefined {
    if (isHttp2(request) || upgrade !== undefined) return undefined;
    return this.#pipelines.enter(request.socket, response() as ServerResponse);
  }

  #connectionsTo({ node, address }: { readonly node: string; readonly address: string }): NodeConnections {
    const key = `${node} ${address}`;
    const known = this.#connections.get(key);
    if (known !== undefined) return known;
    // Nodes that have gone leave nothing behind.
    for (const [name, one] of this.#connections) if (one.isUnused) this.#connections.delete(name);
    const { clock, settings } = this.#parts;
    const stopping = this.#stopping.signal;
    const made = new NodeConnections({ node, address: new URL(address), clock, settings, stopping });
    this.#connections.set(key, made);
    return made;
  }
}

interface Sent {
  /** The number of this attempt, from 1 on. */
  readonly attempt: number;
  /** What was read of the body. */
  readonly body: readonly Buffer[];
}

function hasLeft({ destroyed, closed }: ClientResponse): boolean {
  return destroyed || closed;
}

const FIRST: Sent = { attempt: 1, body: [] };

/** For requests that are about no sandbox yet. */
const NO_SANDBOX = 'sbx_none' as SandboxId;

/**
 * A sandbox that any node may go on with was placed by the first node; the second node would perhaps choose a third one, and
 * must not.
 */
function isHere(location: Location, wasPassedOn: boolean): location is Extract<Location, { is: 'here' }> {
  return location.is === 'here' || (wasPassedOn && location.is === 'elsewhere' && location.isPlaced === true);
}

/** Errors have the shape of the API that the path belongs to. */
function apiRoute(sandboxId: SandboxId, { url = '/' }: ClientRequest): PreviewRoute {
  const dialect = isE2bPath(url) ? 'e2b' : 'native';
  return { to: 'preview', sandboxId, port: 0, by: 'headers', path: url, dialect };
}

function signedPartOf(request: ClientRequest): SignedRequest {
  const { method = 'GET', url: target = '/' } = request;
  return { method, target, host: originOf(request).host };
}

/** The answer to a request about a sandbox whose node has no live lease. */
export function nodeIsAway(
  sandboxId: SandboxId,
  { node, since }: Extract<Location, { is: 'unreachable' }>,
): TorporError {
  return new TorporError(
    'unreachable',
    `The sandbox lives on the node "${node}", which is away since ${new Date(since).toISOString()}.`,
    {
      sandboxId,
      retryAfterMs: 5_000,
      hint: `The sandbox answers again when the node is back. If the node is gone for good: torpor node forget ${node}`,
      details: { dispatched: false, node, since },
    },
  );
}

function moving(sandboxId: SandboxId): TorporError {
  return new TorporError('unreachable', 'The sandbox is moving to another node.', {
    ...(sandboxId === NO_SANDBOX ? {} : { sandboxId }),
    retryAfterMs: 1_000,
    hint: 'Nothing has seen the request: send it again.',
    details: { dispatched: false },
  });
}

function notBelieved(node: string, status: number): TorporError {
  return new TorporError(
    'unreachable',
    `The node "${node}" does not accept requests of this node (${status}).`,
    {
      hint: 'Give all nodes the same TORPOR_CLUSTER_SECRET, and set their clocks. The log of that node says why.',
      details: { dispatched: false, node },
    },
  );
}
