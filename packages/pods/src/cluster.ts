/**
 * The connection to a cluster: requests and watches at its API server. `@kubernetes/client-node` finds the address and the
 * credentials (kubeconfig, exec plugins, service account). The requests are our own, because each needs a deadline, an
 * abort signal, and an error that says whether the API server itself answered.
 */
import { type IncomingMessage, request as plainRequest, type RequestOptions } from 'node:http';
import { Agent, request as tlsRequest } from 'node:https';
import { json, text } from 'node:stream/consumers';
import { KubeConfig } from '@kubernetes/client-node';
import { errnoOf } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import WebSocket, { type ClientOptions } from 'ws';
import { z } from 'zod';
import { type ApiStatus, apiStatusSchema, ClusterFault, noAnswer } from './cluster-fault.ts';

export interface ClusterOptions {
  /** A kubeconfig file. Undefined: KUBECONFIG, the usual file, or the service account of the pod that the server runs in. */
  readonly kubeconfig?: string | undefined;
  readonly context?: string | undefined;
  /** How long one request may take. */
  readonly requestMs: number;
}

export interface Ask {
  /** For people: "create the pod". */
  readonly what: string;
  readonly signal: AbortSignal;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly contentType?: string;
}

const watchEventSchema = z.object({
  type: z.enum(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']),
  object: z.unknown(),
});
export type WatchEvent = z.infer<typeof watchEventSchema>;

const MERGE_PATCH = 'application/merge-patch+json';

export class Cluster {
  readonly #config: KubeConfig;
  readonly #server: URL;
  readonly #requestMs: number;
  readonly #pool = new Agent({ keepAlive: true });
  /** A socket is never used again, but its TLS session is: the handshake of the next one takes no certificates. */
  readonly #sockets = new Agent();
  /** Whether the server itself runs in the cluster, so that it can reach pods by their addresses. */
  readonly isInside: boolean;

  constructor({ kubeconfig, context, requestMs }: ClusterOptions) {
    const config = new KubeConfig();
    try {
      if (kubeconfig === undefined) config.loadFromDefault();
      else config.loadFromFile(kubeconfig);
      if (context !== undefined) config.setCurrentContext(context);
    } catch (cause) {
      throw new TorporError('invalid_request', `The kubeconfig cannot be used: ${String(cause)}`, { cause });
    }
    const server = config.getCurrentCluster()?.server;
    if (server === undefined) {
      throw new TorporError('invalid_request', 'No cluster is configured.', {
        hint: 'Set KUBECONFIG or TORPOR_KUBERNETES_CONFIG, or run the server in a pod with a service account.',
      });
    }
    this.#config = config;
    this.#server = new URL(server);
    this.#requestMs = requestMs;
    this.isInside = config.getCurrentContext() === 'inClusterContext';
  }

  /** The address of the API server, for people. */
  get address(): string {
    return this.#server.origin;
  }

  get<T>(path: string, ask: Ask): Promise<T> {
    return this.#exchange('GET', path, ask);
  }

  create<T>(path: string, ask: Ask): Promise<T> {
    return this.#exchange('POST', path, ask);
  }

  patch<T>(path: string, ask: Ask): Promise<T> {
    return this.#exchange('PATCH', path, { contentType: MERGE_PATCH, ...ask });
  }

  remove<T>(path: string, ask: Ask): Promise<T> {
    return this.#exchange('DELETE', path, ask);
  }

  /** Ends when the API server ends the stream. An ERROR event, a broken stream and a silent one are thrown. */
  async *watch(path: string, ask: Ask, silentMs: number): AsyncGenerator<WatchEvent> {
    const stopped = new AbortController();
    const signal = AbortSignal.any([ask.signal, stopped.signal]);
    let timer = setTimeout(() => stopped.abort(), silentMs);
    try {
      const response = await this.#send('GET', path, { ...ask, signal });
      if (response.statusCode !== 200) throw await faultOf(response, ask.what);
      let rest = '';
      for await (const chunk of response.setEncoding('utf8')) {
        clearTimeout(timer);
        timer = setTimeout(() => stopped.abort(), silentMs);
        const lines = `${rest}${chunk}`.split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (line.trim() !== '') yield eventOf(line, ask.what);
      }
    } catch (thrown) {
      ask.signal.throwIfAborted();
      throw thrown instanceof TorporError ? thrown : noAnswer(ask.what, thrown);
    } finally {
      clearTimeout(timer);
      stopped.abort();
    }
  }

  /** Opens a WebSocket at the API server, for streams to pods. */
  async openSocket(path: string, protocol: string): Promise<WebSocket> {
    const options: ClientOptions = { headers: {}, handshakeTimeout: this.#requestMs };
    await this.#authorize(options, this.#sockets);
    const url = new URL(path, this.#server);
    url.protocol = this.#server.protocol === 'http:' ? 'ws:' : 'wss:';
    return new WebSocket(url, [protocol], options);
  }

  close(): void {
    this.#pool.destroy();
    this.#sockets.destroy();
  }

  async #exchange<T>(method: string, path: string, ask: Ask): Promise<T> {
    const signal = AbortSignal.any([ask.signal, AbortSignal.timeout(this.#requestMs)]);
    try {
      const response = await this.#sendOrRetry(method, path, { ...ask, signal });
      if ((response.statusCode ?? 500) >= 300) throw await faultOf(response, ask.what);
      return (await json(response)) as T;
    } catch (thrown) {
      ask.signal.throwIfAborted();
      throw thrown instanceof TorporError ? thrown : noAnswer(ask.what, thrown);
    }
  }

  /** The API server may close an idle connection at the moment in which it is used again. Only a read is repeated. */
  async #sendOrRetry(method: string, path: string, ask: Ask): Promise<IncomingMessage> {
    try {
      return await this.#send(method, path, ask);
    } catch (thrown) {
      if (method !== 'GET' || errnoOf(thrown) !== 'ECONNRESET') throw thrown;
      return this.#send(method, path, ask);
    }
  }

  async #send(method: string, path: string, ask: Ask): Promise<IncomingMessage> {
    const { query = {}, body, contentType = 'application/json', signal } = ask;
    const headers: Record<string, string> = { accept: 'application/json' };
    const options: RequestOptions = { method, headers, signal };
    await this.#authorize(options, this.#pool);
    const url = new URL(path, this.#server);
    url.search = new URLSearchParams(query).toString();
    const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    if (bytes !== undefined) {
      headers['content-type'] = contentType;
      // Node does not say by itself how long the body of a DELETE is.
      headers['content-length'] = String(bytes.length);
    }
    const send = url.protocol === 'http:' ? plainRequest : tlsRequest;
    return new Promise((resolve, reject) => {
      const outgoing = send(url, { ...options, headers: { ...options.headers, ...headers } }, resolve);
      outgoing.on('error', reject);
      outgoing.end(bytes);
    });
  }

  async #authorize(options: RequestOptions | ClientOptions, agent: Agent): Promise<void> {
    // Reads tokens anew, which are replaced from time to time.
    await this.#config.applyToHTTPSOptions(options);
    if (this.#config.getCurrentCluster()?.proxyUrl !== undefined) return;
    if (this.#server.protocol === 'https:') options.agent = agent;
    else delete options.agent;
  }
}

function eventOf(line: string, what: string): WatchEvent {
  const event = watchEventSchema.parse(JSON.parse(line));
  if (event.type !== 'ERROR') return event;
  const status = apiStatusSchema.safeParse(event.object).data;
  throw new ClusterFault(status?.code ?? 500, status, what);
}

async function faultOf(response: IncomingMessage, what: string): Promise<ClusterFault> {
  const said = await text(response).catch(() => '');
  let body: ApiStatus | undefined;
  try {
    body = apiStatusSchema.safeParse(JSON.parse(said)).data;
  } catch {
    // Proxies answer with other bodies.
  }
  return new ClusterFault(response.statusCode ?? 500, body, what);
}
