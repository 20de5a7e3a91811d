/**
 * A provider with E2B's API on this machine that can be made to fail. One real agent is behind all its sandboxes, so that
 * commands run and files are written. The sandboxes themselves are entries of a map.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { agentBundle } from '@torpor/runtime-shared/testing';

interface ProvidedSandbox {
  readonly id: string;
  state: 'running' | 'paused';
  readonly metadata: Record<string, string>;
  /** Seconds, as set by the last call. */
  lifetime: number;
}

export type Fault =
  | { readonly status: number; readonly body?: string }
  | 'hang'
  /** The call takes effect, but its answer is lost: never sent, or replaced by a proxy. */
  | 'hang after'
  | '502 after'
  /** The answer is a success, but the call has no effect. */
  | 'lie';

export interface FaultProvider {
  readonly url: string;
  readonly sandboxes: Map<string, ProvidedSandbox>;
  /** All calls so far, such as `POST /sandboxes/:id/pause`. */
  readonly calls: string[];
  /** Called before each call of the API; the call gets the returned fault. */
  fault: (call: string) => Fault | undefined;
  dispose(): Promise<void>;
}

/** The lifetime that a connect sets, whatever the request says. */
const CONNECT_LIFETIME = 300;

export async function faultProvider(): Promise<FaultProvider> {
  const place = await mkdtemp(join(tmpdir(), 'torpor-provider-'));
  const agent = await startAgent(place);
  const sandboxes = new Map<string, ProvidedSandbox>();
  const calls: string[] = [];
  let made = 0;
  const server = createServer((incoming, response) => {
    answer(incoming, response).catch(() => response.destroy());
  });
  const provider: FaultProvider = {
    url: '',
    sandboxes,
    calls,
    fault: () => undefined,
    dispose: async () => {
      server.close();
      server.closeAllConnections();
      agent.child.kill('SIGTERM');
      await once(agent.child, 'exit');
      await rm(place, { recursive: true, force: true });
    },
  };

  const answer = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const id = incoming.headers['e2b-sandbox-id'];
    if (typeof id === 'string') return toAgent(id, incoming, response);
    const path = new URL(incoming.url ?? '/', 'http://provider').pathname.replace(/^\/v2/, '');
    const [, , sandboxId = '', verb] = path.split('/');
    const call = `${incoming.method} ${path.replace(sandboxId || '\0', ':id')}`;
    calls.push(call);
    const fault = provider.fault(call);
    if (fault === 'hang') return;
    if (fault === 'lie') return void response.writeHead(204).end();
    if (typeof fault === 'object') return void response.writeHead(fault.status).end(fault.body ?? '');
    const answered = fault === undefined ? response : lostAnswer(fault, response);
    const body = incoming.method === 'POST' ? ((await json(incoming).catch(() => ({}))) as Body) : {};
    serve(incoming, answered, sandboxId, verb, body);
  };

  const serve = (
    incoming: IncomingMessage,
    response: Answer,
    id: string,
    verb: string | undefined,
    body: Body,
  ) => {
    if (id === '') return incoming.method === 'POST' ? create(response, body) : list(incoming, response);
    const sandbox = sandboxes.get(id);
    if (sandbox === undefined) return send(response, 404, { code: 404, message: `sandbox ${id} not found` });
    switch (`${incoming.method} ${verb ?? ''}`) {
      case 'GET ':
        return send(response, 200, detail(sandbox));
      case 'DELETE ':
        sandboxes.delete(id);
        return send(response, 204);
      case 'POST pause':
        if (sandbox.state === 'paused') return send(response, 409, { code: 409, message: 'it is paused' });
        sandbox.state = 'paused';
        return send(response, 204);
      case 'POST connect':
        sandbox.state = 'running';
        sandbox.lifetime = CONNECT_LIFETIME;
        return send(response, 200, shown(sandbox));
      case 'POST timeout':
        sandbox.lifetime = Number(body.timeout);
        return send(response, 204);
      default:
        return send(response, 404, { code: 404, message: 'there is nothing here' });
    }
  };

  const create = (response: Answer, { metadata = {}, timeout = 15 }: Body): void => {
    const id = `i${String(++made).padStart(19, '0')}`;
    const sandbox: ProvidedSandbox = { id, state: 'running', metadata, lifetime: timeout };
    sandboxes.set(id, sandbox);
    send(response, 201, shown(sandbox));
  };

  const list = (incoming: IncomingMessage, response: Answer) => {
    const query = new URL(incoming.url ?? '/', 'http://provider').searchParams.get('metadata') ?? '';
    const wanted = [...new URLSearchParams(query)].map(([k, v]) => [
      decodeURIComponent(k),
      decodeURIComponent(v),
    ]);
    const found = [...sandboxes.values()].filter(({ metadata }) =>
      wanted.every(([key = '', value]) => metadata[key] === value),
    );
    send(response, 200, found.map(detail));
  };

  const toAgent = (id: string, incoming: IncomingMessage, response: ServerResponse) => {
    if (sandboxes.get(id)?.state !== 'running') {
      return send(response, 502, { sandboxId: id, message: 'The sandbox was not found', code: 502 });
    }
    const { method, headers, url } = incoming;
    const outgoing = request({ socketPath: agent.socketPath, method, headers, path: url }, (answered) => {
      response.writeHead(answered.statusCode ?? 502, answered.rawHeaders);
      answered.pipe(response);
    });
    outgoing.on('error', () => response.destroy());
    response.on('close', () => outgoing.destroy());
    incoming.pipe(outgoing);
  };

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(provider, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
}

interface Body {
  readonly metadata?: Record<string, string>;
  readonly timeout?: number;
}

function shown({ id }: ProvidedSandbox) {
  return { sandboxID: id, templateID: 'base', clientID: 'here', envdVersion: '0.6.4' };
}

function detail(sandbox: ProvidedSandbox) {
  const { state, metadata, lifetime } = sandbox;
  const startedAt = new Date(0).toISOString();
  const endAt = new Date(lifetime * 1_000).toISOString();
  const size = { cpuCount: 1, memoryMB: 512, diskSizeMB: 1024 };
  return { ...shown(sandbox), ...size, state, metadata, startedAt, endAt };
}

/** Receives the real answer, which the fault replaces or drops. */
function lostAnswer(fault: 'hang after' | '502 after', response: ServerResponse): Answer {
  const end = () => {
    if (fault === '502 after') response.writeHead(502).end('<html>Bad Gateway</html>');
  };
  return { writeHead: () => {}, end };
}

/** The parts of an HTTP response that the provider writes. */
interface Answer {
  writeHead(status: number, headers?: Record<string, string>): unknown;
  end(body?: string): unknown;
}

function send(response: Answer, status: number, body?: unknown): void {
  response.writeHead(status, body === undefined ? {} : { 'content-type': 'application/json' });
  response.end(body === undefined ? undefined : JSON.stringify(body));
}

async function startAgent(
  place: string,
): Promise<{ readonly child: ChildProcess; readonly socketPath: string }> {
  const socketPath = join(place, 'agent.sock');
  const script = join(await agentBundle(), 'agent.mjs');
  const child = spawn(
    process.execPath,
    [script, '--listen', `unix:${socketPath}`, '--root', place, '--sandbox-id', 'sbx_00000000000000000000'],
    { stdio: ['ignore', 'ignore', 'pipe'], env: { PATH: process.env['PATH'] } },
  );
  await once(child.stderr as NodeJS.ReadableStream, 'data');
  return { child, socketPath };
}
