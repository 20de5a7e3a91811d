/**
 * TLS connections of sandboxes that the egress opens, because a secret has to be put into their requests. The egress is
 * the server of the sandbox's connection and the client of another one to the real host.
 *
 * Every request is parsed and written anew: one request to the host for each request of the sandbox, by Node's strict
 * parser, without the headers of the connection. A request is sent on only if its Host is the name of the connection, and
 * the host has proved with a certificate that it has this name. Bodies stream in both directions.
 */
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { TLSSocket } from 'node:tls';
import type { UsableSecret } from '@torpor/engine';
import { normalName } from '../host-name.ts';
import type { EgressAuthority } from './egress-authority.ts';
import { endToEndHeaders, grouped, upstreamHeaders } from './request-headers.ts';
import { headersFor } from './secret-rules.ts';
import { UpstreamAgent, UpstreamFailure } from './upstream-agent.ts';

/** A host that a sandbox has connected to. */
export interface OpenedHost {
  /** The name in the TLS handshake. */
  readonly name: string;
  readonly port: number;
  /** Dials a checked address of the name. Undefined when none answers or may be reached. */
  dial(): Promise<Socket | undefined>;
  /** The secrets for this host now. */
  secrets(): Promise<readonly UsableSecret[]>;
  onRefused(reason: OpenedRefusal): void;
}

export type OpenedRefusal = 'wrong_host' | 'untrusted_server' | 'untrusted_egress';

export interface OpenedLimits {
  readonly headBytes: number;
  /** The TLS handshake and the first request must be complete in this time. */
  readonly headMs: number;
  /** A connection without a byte for so long is closed. */
  readonly idleMs: number;
}

const DEFAULT_LIMITS: OpenedLimits = { headBytes: 65_536, headMs: 30_000, idleMs: 900_000 };

/** What a client sends when it does not accept a certificate or its authority. */
const CERTIFICATE_ALERT = /ALERT.*(?:_CA|CERTIFICATE)/;

interface Opened {
  readonly host: OpenedHost;
  readonly agent: UpstreamAgent;
  /** Ends a connection whose first request does not arrive. */
  readonly headTimer: NodeJS.Timeout;
}

/** An answer of the egress itself. */
interface Refusal {
  readonly status: number;
  readonly message: string;
}

export class OpenedConnections {
  readonly #authority: EgressAuthority;
  readonly #upstreamAuthorities: readonly string[];
  readonly #limits: OpenedLimits;
  /** Listens nowhere: it gets its connections from `serve`. */
  readonly #server: Server;
  readonly #opened = new WeakMap<Socket, Opened>();

  constructor(
    authority: EgressAuthority,
    upstreamAuthorities: readonly string[] = [],
    limits: Partial<OpenedLimits> = {},
  ) {
    this.#authority = authority;
    this.#upstreamAuthorities = upstreamAuthorities;
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
    const options = {
      insecureHTTPParser: false,
      requireHostHeader: true,
      maxHeaderSize: this.#limits.headBytes,
      // A body may take as long as it needs, as long as bytes arrive.
      requestTimeout: 0,
      keepAliveTimeout: this.#limits.idleMs,
    };
    this.#server = createServer(options, (request, response) => this.#accept(request, response));
    this.#server.setTimeout(this.#limits.idleMs);
  }

  /** Takes over the connection. Its first bytes were put back into it. */
  async serve(client: Socket, host: OpenedHost): Promise<void> {
    const { idleMs, headMs } = this.#limits;
    const secureContext = await this.#authority.contextFor(host.name);
    if (client.destroyed) return;
    const secure = new TLSSocket(client, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] });
    const agent = new UpstreamAgent({
      name: host.name,
      dial: () => host.dial(),
      authorities: this.#upstreamAuthorities,
      idleMs,
    });
    const headTimer = setTimeout(() => client.destroy(), headMs);
    this.#opened.set(secure, { host, agent, headTimer });
    let isSecure = false;
    secure.once('secure', () => {
      isSecure = true;
      // The first bytes were parsed by us before. OpenSSL must have found the same name in them.
      if (normalName(String((secure as { servername?: unknown }).servername)) !== host.name) client.destroy();
      else this.#server.emit('connection', secure);
    });
    secure.on('error', ({ code = '' }: NodeJS.ErrnoException) => {
      if (!isSecure && CERTIFICATE_ALERT.test(code)) host.onRefused('untrusted_egress');
      client.destroy();
    });
    client.once('close', () => {
      clearTimeout(headTimer);
      agent.destroy();
      secure.destroy();
    });
  }

  #accept(request: IncomingMessage, response: ServerResponse): void {
    const opened = this.#opened.get(request.socket);
    if (opened === undefined) return void request.socket.destroy();
    clearTimeout(opened.headTimer);
    response.sendDate = false;
    this.#handle(opened, request, response).catch(() => request.socket.destroy());
  }

  async #handle({ host, agent }: Opened, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refusal = refusalOf(host, request);
    if (refusal !== undefined) {
      if (refusal.status === MISDIRECTED) host.onRefused('wrong_host');
      return answer(response, refusal);
    }
    const { method = '', url: path = '' } = request;
    const secrets = headersFor(await host.secrets(), method, path);
    const headers = grouped(upstreamHeaders(request, secrets));
    const isChunked = request.headers['transfer-encoding'] !== undefined;
    const hasBody = isChunked || request.headers['content-length'] !== undefined;
    if (isChunked) headers['Transfer-Encoding'] = 'chunked';
    const upstream = httpRequest({
      agent,
      method,
      path,
      headers,
      setHost: false,
      maxHeaderSize: this.#limits.headBytes,
    });
    response.once('close', () => {
      if (!response.writableFinished) upstream.destroy();
    });
    const answered = Promise.withResolvers<IncomingMessage>();
    upstream.once('response', answered.resolve);
    // A server may answer and close before it has read the whole body, so this is no error after a response.
    upstream.on('error', answered.reject);
    if (hasBody) pipeline(request, upstream).catch(answered.reject);
    else upstream.end();
    try {
      await passOn(await answered.promise, response);
    } catch (thrown) {
      upstream.destroy();
      if (response.headersSent) return void request.socket.destroy();
      if (thrown instanceof UpstreamFailure && thrown.is === 'untrusted') host.onRefused('untrusted_server');
      answer(response, { status: 502, message: messageOf(host, thrown) });
    }
  }
}

async function passOn(from: IncomingMessage, to: ServerResponse): Promise<void> {
  to.writeHead(from.statusCode ?? 502, from.statusMessage, endToEndHeaders(from).flat());
  await pipeline(from, to);
}

const MISDIRECTED = 421;

/** Undefined when the request may be sent on. */
function refusalOf({ name, port }: OpenedHost, request: IncomingMessage): Refusal | undefined {
  const { method = '', url = '', rawHeaders } = request;
  const hosts = rawHeaders.filter(
    (_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === 'host',
  );
  const [, hostName = '', digits = '443'] = /^([^:]*)(?::(\d{1,5}))?$/.exec(hosts[0] ?? '') ?? [];
  if (hosts.length !== 1 || normalName(hostName) !== name || Number(digits) !== port)
    return {
      status: MISDIRECTED,
      message: `The Host of the request is not ${name}, which the connection is for.`,
    };
  if (!url.startsWith('/')) return { status: 400, message: 'The target of the request must be a path.' };
  // A server answers TRACE with the request that it got, secrets included.
  if (method === 'TRACE') return { status: 405, message: 'TRACE is not possible through the egress.' };
  if (request.headers.upgrade !== undefined)
    return {
      status: 501,
      message: `The egress passes no WebSockets and other upgrades to ${name}, which has a secret.`,
    };
  return undefined;
}

/** The connection ends, because the rest of the request is not read. */
function answer(response: ServerResponse, { status, message }: Refusal): void {
  const body = JSON.stringify({ error: { code: 'egress', message: `Torpor's egress: ${message}` } });
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
  };
  response.writeHead(status, headers).end(body);
}

/** Errors of sockets may quote bytes of the request, so only their codes are shown. */
function messageOf({ name }: OpenedHost, thrown: unknown): string {
  if (thrown instanceof UpstreamFailure) return thrown.message;
  const code = (thrown as NodeJS.ErrnoException | undefined)?.code ?? 'unknown';
  return `The request to ${name} failed (${code}).`;
}
