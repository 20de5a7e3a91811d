/** The agent's one door: who may come in, and where each path leads. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { create, type DescMessage, fromJson, type MessageShape, toJson } from '@bufbuild/protobuf';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import {
  ACCESS_TOKEN_HEADER,
  CREDENTIAL_HEADER,
  checkSignature,
  ENVD_VERSION,
  ForwardRequestSchema,
  ForwardResponseSchema,
  InitRequestSchema,
  InitResponseSchema,
  MetricsSchema,
  PortListSchema,
  Process,
} from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { isFilePath } from '../files/file-handler.ts';
import type { SandboxIdentity } from '../identity/sandbox-identity.ts';
import type { NameOrder } from '../machine/machine-names.ts';
import type { MetricsSource } from '../machine/metrics.ts';
import type { OpenPort } from '../network/listening-ports.ts';
import { firstEnd, tagsOf } from '../processes/process-ends.ts';
import { describeAll, type ProcessServiceParts, processService } from '../processes/process-service.ts';
import type { Turns } from '../turns/turns.ts';
import {
  answerFailure,
  answerJson,
  answerRpcFailure,
  parseJson,
  pathOf,
  queryOf,
  readBody,
} from './answers.ts';
import { RPC_OPTIONS, safeForConnect } from './rpc-options.ts';

export interface RouteParts {
  readonly identity: SandboxIdentity;
  readonly processes: ProcessServiceParts;
  readonly files: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
  readonly ports: () => Promise<OpenPort[]>;
  readonly metrics: MetricsSource;
  readonly monotonicMs: () => number;
  /** Whether the machine took the name. */
  readonly applyHostname: (name: string) => Promise<boolean>;
  /** Whether the machine took them. */
  readonly applyNames: (names: NameOrder) => boolean;
  /** Whether the machine keeps to it. */
  readonly limitProcesses: (most: number) => Promise<boolean>;
  /** What to dial from outside for a port; undefined when nobody listens. */
  readonly forward: (port: number) => Promise<number | undefined>;
  readonly warmUp: () => Promise<void>;
  readonly turns: Turns;
}

const PROCESS_PREFIX = `/${Process.typeName}/`;

export function routes(parts: RouteParts): (request: IncomingMessage, response: ServerResponse) => void {
  const rpc = connectNodeAdapter({
    ...RPC_OPTIONS,
    routes: (router) => void router.service(Process, processService(parts.processes)),
  });
  return (request, response) => {
    const path = pathOf(request);
    const answer = async () => {
      if (request.method === 'GET' && path === '/health') return void response.writeHead(204).end();
      if (request.method === 'POST' && path === '/init') return init(parts, request, response);
      checkAccess(parts.identity, request, path);
      if (path.startsWith(PROCESS_PREFIX)) return rpc(safeForConnect(request, response), response);
      if (isFilePath(path)) return parts.files(request, response);
      return plain(parts, `${request.method} ${path}`, request, response);
    };
    answer().catch((thrown) => {
      request.resume();
      if (/^\/\w+\.\w+\//.test(path)) answerRpcFailure(response, thrown);
      else answerFailure(response, thrown);
    });
  };
}

/** The token, or for single files a signature made with it. */
function checkAccess(identity: SandboxIdentity, request: IncomingMessage, path: string): void {
  const given = request.headers[ACCESS_TOKEN_HEADER];
  if (identity.admits(given === undefined ? undefined : String(given))) return;
  if (path !== '/files' || given !== undefined || identity.token === undefined) {
    throw new TorporError('unauthenticated', `Send the sandbox's access token in ${ACCESS_TOKEN_HEADER}.`);
  }
  const query = queryOf(request);
  const expiration = query.get('signature_expiration');
  const refusal = checkSignature(
    {
      path: query.get('path') ?? '',
      operation: request.method === 'GET' ? 'read' : 'write',
      user: query.get('username') ?? undefined,
      expiration: expiration === null ? undefined : Number(expiration),
    },
    query.get('signature') ?? undefined,
    identity.token,
    identity.now() / 1000,
  );
  if (refusal !== undefined) throw new TorporError('unauthenticated', refusal);
}

async function init(parts: RouteParts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { identity, metrics } = parts;
  const credential = request.headers[CREDENTIAL_HEADER];
  if (!identity.maySetUp(credential === undefined ? undefined : String(credential))) {
    throw new TorporError('unauthenticated', 'This is not the credential that was agreed on.');
  }
  const order = await readMessage(request, InitRequestSchema);
  identity.apply(order);
  metrics.restart();
  const { maxProcesses } = order;
  const [hostnameSet, namesSet, processesLimited] = await Promise.all([
    order.hostname ? parts.applyHostname(order.hostname) : false,
    parts.applyNames(order),
    maxProcesses === undefined ? false : parts.limitProcesses(maxProcesses),
  ]);
  const answer = create(InitResponseSchema, {
    version: ENVD_VERSION,
    hostnameSet,
    namesSet,
    processesLimited,
    tagged: describeAll(parts.processes.table).filter(({ tag }) => tag !== undefined),
  });
  answerJson(response, 200, toJson(InitResponseSchema, answer));
}

async function readMessage<D extends DescMessage>(
  request: IncomingMessage,
  schema: D,
): Promise<MessageShape<D>> {
  const body = parseJson(await readBody(request));
  try {
    return fromJson(schema, body as never, { ignoreUnknownFields: true });
  } catch (cause) {
    throw new TorporError('invalid_request', 'The body is not what this call needs.', { cause });
  }
}

async function plain(
  parts: RouteParts,
  call: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  switch (call) {
    case 'POST /warm-up':
      await parts.warmUp();
      return void response.writeHead(204).end();
    case 'POST /process-ends': {
      const left = new AbortController();
      response.once('close', () => left.abort());
      const tags = tagsOf(parseJson(await readBody(request)));
      return answerJson(response, 200, await firstEnd(parts.processes.table, tags, left.signal));
    }
    case 'POST /turns':
      return answerJson(response, 200, await parts.turns.take(parseJson(await readBody(request))));
    case 'POST /forward': {
      const { port } = await readMessage(request, ForwardRequestSchema);
      const reached = create(ForwardResponseSchema, { port: (await parts.forward(port)) ?? 0 });
      return answerJson(response, 200, toJson(ForwardResponseSchema, reached, { alwaysEmitImplicit: true }));
    }
    case 'GET /envs':
      return answerJson(response, 200, parts.identity.envs);
    case 'GET /ports': {
      const list = create(PortListSchema, { ports: await parts.ports() });
      return answerJson(response, 200, toJson(PortListSchema, list, { alwaysEmitImplicit: true }));
    }
    case 'GET /metrics': {
      const figures = await parts.metrics.read(parts.identity.now(), parts.monotonicMs());
      const options = { alwaysEmitImplicit: true, useProtoFieldName: true };
      return answerJson(response, 200, toJson(MetricsSchema, create(MetricsSchema, figures), options));
    }
    default:
      throw new TorporError('not_found', 'There is nothing here.');
  }
}
