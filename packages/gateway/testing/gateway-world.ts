/** A gateway on its own port, with fake sandboxes and real servers behind their ports. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { type Clock, randomIds, systemClock } from '@torpor/engine';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { Gateway, type GatewayObserver, type GatewayParts } from '../src/gateway.ts';
import { createPublicServer, type PublicServer } from '../src/public-server.ts';
import { DEFAULT_GATEWAY_SETTINGS, type GatewaySettings } from '../src/settings.ts';
import { FakeSandboxes } from './fake-sandboxes.ts';

export const DOMAIN = 'sbx.localhost';
export const API_KEY = 'c0ffee42'.repeat(8);

export interface WorldOptions {
  readonly settings?: Partial<GatewaySettings>;
  readonly tls?: { readonly key: string; readonly cert: string };
  readonly clock?: Clock;
  readonly hop?: GatewayParts['hop'];
  /** Stands for the APIs. */
  readonly api?: RequestListener;
}

export interface GatewayWorld extends AsyncDisposable {
  readonly gateway: Gateway;
  readonly sandboxes: FakeSandboxes;
  readonly server: PublicServer;
  readonly port: number;
  readonly refusals: TorporError[];
  readonly woken: SandboxId[];
  hostOf(sandbox: { readonly bare: string }, port?: number): string;
  /** Starts an HTTP server behind a port of a sandbox. */
  serve(
    sandbox: { readonly ports: Map<number, unknown> },
    listener: RequestListener,
    port?: number,
  ): Promise<Server>;
  /** Starts a TCP server behind a port of a sandbox. */
  serveRaw(
    sandbox: { readonly ports: Map<number, unknown> },
    onSocket: (socket: Socket) => void,
    port?: number,
  ): Promise<void>;
}

export async function makeGatewayWorld(options: WorldOptions = {}): Promise<GatewayWorld> {
  const sandboxes = new FakeSandboxes();
  const refusals: TorporError[] = [];
  const woken: SandboxId[] = [];
  const observe: GatewayObserver = {
    previewRequested: () => {},
    refused: (_, error) => void refusals.push(error),
    woken: (id) => void woken.push(id),
  };
  const keys = {
    isKey: async (text: string) => text === API_KEY,
    orgOf: async (headers: { readonly [name: string]: unknown }) => {
      const key = headers['x-api-key'] ?? String(headers['authorization'] ?? '').replace(/^Bearer /, '');
      if (key !== API_KEY) throw new TorporError('unauthenticated', 'There is no valid key.');
      return 'default';
    },
  };
  const gateway = new Gateway({
    checkSignature: (file, signature, token) =>
      signature === `${file.operation}-${token}` ? undefined : 'invalid signature',
    sandboxes,
    keys,
    clock: options.clock ?? systemClock,
    ids: randomIds,
    randomBytes,
    settings: { ...DEFAULT_GATEWAY_SETTINGS, ...options.settings },
    secret: Buffer.from('a secret for tests'),
    observe,
    hop: options.hop,
  });
  const api: RequestListener = options.api ?? ((_, response) => void response.end('the API'));
  const server = createPublicServer({ gateway, api: api as never, tls: options.tls });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  gateway.setPublicAddress({
    domain: `${DOMAIN}:${port}`,
    scheme: options.tls === undefined ? 'http' : 'https',
  });
  const closers: (() => Promise<void>)[] = [];
  return {
    gateway,
    sandboxes,
    server,
    port,
    refusals,
    woken,
    hostOf: ({ bare }, appPort = 3000) => `${appPort}-${bare}.${DOMAIN}:${port}`,
    async serve(sandbox, listener, appPort = 3000) {
      const app = createServer(listener);
      const at = await listen(app);
      sandbox.ports.set(appPort, at);
      closers.push(async () => {
        app.closeAllConnections();
        await new Promise((resolve) => app.close(resolve));
      });
      return app;
    },
    async serveRaw(sandbox, onSocket, appPort = 3000) {
      const sockets = new Set<Socket>();
      const app = createTcpServer((socket) => {
        sockets.add(socket);
        socket.on('error', () => {});
        socket.on('close', () => sockets.delete(socket));
        onSocket(socket);
      });
      sandbox.ports.set(appPort, await listen(app));
      closers.push(async () => {
        for (const socket of sockets) socket.destroy();
        await new Promise((resolve) => app.close(resolve));
      });
    },
    async [Symbol.asyncDispose]() {
      await gateway.stop(AbortSignal.abort());
      await Promise.all(closers.map((close) => close()));
      if ('closeAllConnections' in server) server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function listen(server: {
  listen(port: number, host: string): unknown;
  address(): unknown;
}): Promise<{ host: string; port: number }> {
  server.listen(0, '127.0.0.1');
  await once(server as never, 'listening');
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
}
