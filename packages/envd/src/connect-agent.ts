/**
 * The client of an agent, for the server, the runtimes and the tests.
 *
 * ```ts
 * const agent = connectAgent({ socketPath: '/run/sbx_1.sock', accessToken });
 * for await (const { event } of agent.process.start({ process: { cmd: 'date' } })) …
 * agent.close();
 * ```
 */
import { Agent } from 'node:http';
import { Agent as TlsAgent } from 'node:https';
import { connect, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { create, toJsonString } from '@bufbuild/protobuf';
import { type Client, createClient, type Interceptor } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { TorporError } from '@torpor/protocol';
import { agentError } from './agent-errors.ts';
import { closeOnReturn } from './closing-streams.ts';
import { Filesystem } from './gen/filesystem/filesystem_pb.js';
import { Process } from './gen/process/process_pb.js';
import {
  ForwardRequestSchema,
  ForwardResponseSchema,
  InitRequestSchema,
  type InitResponse,
  InitResponseSchema,
  type ListeningPort,
  type Metrics,
  MetricsSchema,
  PortListSchema,
  TrustRequestSchema,
} from './gen/torpor/agent_pb.js';
import { type AgentAddress, exchange, exchangeJson, exchangeMessage } from './plain-http.ts';
import { type EndedProcess, endedProcess } from './process-ends.ts';
import { type TurnReceipt, type TurnRequest, turnReceipt } from './turns.ts';
import { ACCESS_TOKEN_HEADER, CREDENTIAL_HEADER, METADATA_HEADER_PREFIX } from './wire-names.ts';

export type ConnectAgentOptions = {
  readonly accessToken?: string | undefined;
  /** Sent with every call, for a proxy before the agent. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
} & (
  | { readonly baseUrl: string; readonly socketPath?: never }
  | { readonly socketPath: string; readonly baseUrl?: never }
);

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface FileOptions extends CallOptions {
  readonly user?: string | undefined;
}

export interface WriteOptions extends FileOptions {
  readonly metadata?: Readonly<Record<string, string>>;
}

/** A file as an agent reports it after writing it. */
export interface WrittenFile {
  readonly path: string;
  readonly name: string;
}

/** A stream of events ends when its reader leaves the loop; the process that it shows goes on. */
export interface AgentClient {
  readonly process: Client<typeof Process>;
  readonly filesystem: Client<typeof Filesystem>;
  /** Opens a connection that the next call uses, except over TLS. Never fails: the call does. */
  preconnect(): void;
  /** Resolves when the agent answers. */
  health(options?: CallOptions): Promise<void>;
  /** `credential` is the current one; the request may set the next one. */
  init(
    request: MessageInitShape<typeof InitRequestSchema>,
    options?: CallOptions & { readonly credential?: string | undefined },
  ): Promise<InitResponse>;
  readonly files: {
    read(path: string, options?: FileOptions): Promise<Readable>;
    write(path: string, body: Readable | Uint8Array | string, options?: WriteOptions): Promise<WrittenFile>;
  };
  metrics(options?: CallOptions): Promise<Metrics>;
  envs(options?: CallOptions): Promise<Record<string, string>>;
  ports(options?: CallOptions): Promise<ListeningPort[]>;
  /**
   * The port to dial on the sandbox's own address to reach this port, even when the program listens only on the
   * loopback; null when no program listens. May be repeated.
   */
  forward(port: number, options?: CallOptions): Promise<number | null>;
  /** Lets programs that start from now on trust a certificate authority (PEM). Agents of earlier versions cannot. */
  trust(
    authority: { readonly certificate: string; readonly hash: string },
    options?: CallOptions,
  ): Promise<void>;
  /** Delivers a turn of a session to its program once. A repeated call is answered from the record of the first. */
  deliverTurn(order: TurnRequest, options?: CallOptions): Promise<TurnReceipt>;
  /** Waits until one of these processes has ended. Only Torpor's agent has this call; E2B's answers `not_found`. */
  nextEnd(tags: readonly string[], options?: CallOptions): Promise<EndedProcess>;
  /** Prepares what the first calls would otherwise wait for. */
  warmUp(options?: CallOptions): Promise<void>;
  /**
   * Closes the connections, TCP ones with a reset: a connection that is only closed stays half open in a frozen
   * sandbox, whose memory then cannot be written. A new start of the sandbox needs a new client.
   */
  close(): void;
}

/** A sandbox is untrusted: without a limit, one answer could fill the server's memory. */
const MAX_MESSAGE_BYTES = 32 * 1024 * 1024;
const MAX_PORT = 65_535;

export function connectAgent(options: ConnectAgentOptions): AgentClient {
  const baseUrl = options.baseUrl ?? 'http://agent';
  const pool = baseUrl.startsWith('https:')
    ? new TlsAgent({ keepAlive: true })
    : new PreconnectedPool({ keepAlive: true });
  const preconnected = pool instanceof PreconnectedPool ? pool : undefined;
  const address: AgentAddress = { baseUrl, socketPath: options.socketPath, pool };
  const authorization: Record<string, string> = {
    ...options.headers,
    ...(options.accessToken === undefined ? {} : { [ACCESS_TOKEN_HEADER]: options.accessToken }),
  };
  const authorize: Interceptor = (next) => (request) => {
    for (const [name, value] of Object.entries(authorization)) request.header.set(name, value);
    return next(request);
  };
  const transport = createConnectTransport({
    baseUrl,
    httpVersion: '1.1',
    nodeOptions: {
      agent: pool,
      ...(options.socketPath === undefined ? {} : { socketPath: options.socketPath }),
    },
    interceptors: [authorize],
    // Server and sandbox are on the same machine or network: compression costs more than it saves.
    acceptCompression: [],
    readMaxBytes: MAX_MESSAGE_BYTES,
  });
  const process = createClient(Process, transport);
  const filesystem = createClient(Filesystem, transport);
  return {
    process: { ...process, start: closeOnReturn(process.start), connect: closeOnReturn(process.connect) },
    filesystem: { ...filesystem, watchDir: closeOnReturn(filesystem.watchDir) },
    files: fileCalls(address, authorization),
    ...plainCalls(address, authorization),
    preconnect: () => preconnected?.preconnect(baseUrl, options.socketPath),
    close: () => {
      preconnected?.dropPreconnected();
      if (options.socketPath === undefined) for (const socket of socketsOf(pool)) socket.resetAndDestroy();
      pool.destroy();
    },
  };
}

/** Connections to one agent; the first one may be opened before the first request. */
class PreconnectedPool extends Agent {
  #preconnected: Socket | undefined;

  preconnect(baseUrl: string, socketPath: string | undefined): void {
    const { hostname, port } = new URL(baseUrl);
    const socket = connect(
      socketPath === undefined ? { host: hostname, port: Number(port) } : { path: socketPath },
    );
    socket.setNoDelay(true);
    // The request that is given the socket reports the error.
    socket.on('error', () => {});
    this.#preconnected = socket;
  }

  dropPreconnected(): void {
    this.#preconnected?.destroy();
    this.#preconnected = undefined;
  }

  override createConnection(
    ...given: Parameters<Agent['createConnection']>
  ): ReturnType<Agent['createConnection']> {
    const socket = this.#preconnected;
    this.#preconnected = undefined;
    return socket === undefined || socket.destroyed ? super.createConnection(...given) : socket;
  }
}

function socketsOf(pool: Agent): Socket[] {
  return [pool.sockets, pool.freeSockets].flatMap((each) =>
    Object.values(each).flatMap((sockets) => sockets ?? []),
  );
}

function plainCalls(address: AgentAddress, authorization: Readonly<Record<string, string>>) {
  return {
    async health({ signal }: CallOptions = {}): Promise<void> {
      const answer = await exchange(address, { method: 'GET', path: '/health', signal });
      // Only a connection whose answer was read to its end is free for the next call.
      await finished(answer.resume()).catch((error: unknown) => {
        throw agentError(error);
      });
    },

    init(
      request: MessageInitShape<typeof InitRequestSchema>,
      { signal, credential }: CallOptions & { readonly credential?: string | undefined } = {},
    ): Promise<InitResponse> {
      const headers = {
        'content-type': 'application/json',
        ...(credential === undefined ? {} : { [CREDENTIAL_HEADER]: credential }),
      };
      const body = toJsonString(InitRequestSchema, create(InitRequestSchema, request));
      return exchangeMessage(
        address,
        { method: 'POST', path: '/init', headers, body, signal },
        InitResponseSchema,
      );
    },

    metrics({ signal }: CallOptions = {}): Promise<Metrics> {
      return exchangeMessage(
        address,
        { method: 'GET', path: '/metrics', headers: authorization, signal },
        MetricsSchema,
      );
    },

    async envs({ signal }: CallOptions = {}): Promise<Record<string, string>> {
      const answer = await exchangeJson(address, {
        method: 'GET',
        path: '/envs',
        headers: authorization,
        signal,
      });
      return Object.fromEntries(
        Object.entries(answer ?? {}).filter((pair): pair is [string, string] => typeof pair[1] === 'string'),
      );
    },

    async ports({ signal }: CallOptions = {}): Promise<ListeningPort[]> {
      const call = { method: 'GET', path: '/ports', headers: authorization, signal } as const;
      return (await exchangeMessage(address, call, PortListSchema)).ports;
    },

    async forward(port: number, { signal }: CallOptions = {}): Promise<number | null> {
      const headers = { ...authorization, 'content-type': 'application/json' };
      const body = toJsonString(ForwardRequestSchema, create(ForwardRequestSchema, { port }));
      const call = { method: 'POST', path: '/forward', headers, body, signal } as const;
      const { port: reached } = await exchangeMessage(address, call, ForwardResponseSchema);
      if (reached > MAX_PORT) throw new TorporError('internal', 'The agent answered with an invalid port.');
      return reached || null;
    },

    async trust(
      authority: { readonly certificate: string; readonly hash: string },
      { signal }: CallOptions = {},
    ): Promise<void> {
      const headers = { ...authorization, 'content-type': 'application/json' };
      const body = toJsonString(TrustRequestSchema, create(TrustRequestSchema, authority));
      (await exchange(address, { method: 'POST', path: '/trust', headers, body, signal })).resume();
    },

    async deliverTurn(order: TurnRequest, { signal }: CallOptions = {}): Promise<TurnReceipt> {
      const headers = { ...authorization, 'content-type': 'application/json' };
      const call = { method: 'POST', path: '/turns', headers, body: JSON.stringify(order), signal } as const;
      return turnReceipt(await exchangeJson(address, call));
    },

    async nextEnd(tags: readonly string[], { signal }: CallOptions = {}): Promise<EndedProcess> {
      const headers = { ...authorization, 'content-type': 'application/json' };
      const body = JSON.stringify({ tags });
      const call = { method: 'POST', path: '/process-ends', headers, body, signal } as const;
      return endedProcess(await exchangeJson(address, call));
    },

    async warmUp({ signal }: CallOptions = {}): Promise<void> {
      const call = { method: 'POST', path: '/warm-up', headers: authorization, signal } as const;
      (await exchange(address, call)).resume();
    },
  };
}

function fileCalls(
  address: AgentAddress,
  authorization: Readonly<Record<string, string>>,
): AgentClient['files'] {
  return {
    read(path, { user, signal } = {}) {
      const query = { path, username: user };
      return exchange(address, { method: 'GET', path: '/files', query, headers: authorization, signal });
    },

    async write(path, body, { user, metadata = {}, signal } = {}) {
      const headers: Record<string, string> = {
        ...authorization,
        'content-type': 'application/octet-stream',
      };
      for (const [key, value] of Object.entries(metadata)) headers[METADATA_HEADER_PREFIX + key] = value;
      const query = { path, username: user };
      return writtenFile(
        await exchangeJson(address, { method: 'POST', path: '/files', query, headers, body, signal }),
      );
    },
  };
}

function writtenFile(answer: unknown): WrittenFile {
  const first: unknown = Array.isArray(answer) ? answer[0] : undefined;
  const { path, name } = (first ?? {}) as { path?: unknown; name?: unknown };
  if (typeof path !== 'string' || typeof name !== 'string') {
    throw new TorporError('internal', 'The agent did not describe the written file.');
  }
  return { path, name };
}
