/** The agent's request handler: checks access and routes each path. */
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
  TrustRequestSchema,
} from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { type FileHandler, isFilePath } from '../files/file-handler.ts';
import type { SandboxIdentity } from '../identity/sandbox-identity.ts';
import type { NameFiles } from '../machine/machine-names.ts';
import type { MetricsSource } from '../machine/metrics.ts';
import { AUTHORITY_VARIABLES, type Authority } from '../machine/trusted-authority.ts';
import type { OpenPort } from '../network/listening-ports.ts';
import { firstEnd, parseTags } from '../processes/process-ends.ts';
import {
  describeAll,
  describeSucceeded,
  type ProcessServiceParts,
  processService,
} from '../processes/process-service.ts';
import type { Turns } from '../turns/turns.ts';
import { answerError, answerJson, answerRpcError, parseJson, pathOf, queryOf, readBody } from './answers.ts';
import { prepareForConnect, RPC_OPTIONS } from './rpc-options.ts';

export interface RouteParts {
  readonly identity: SandboxIdentity;
  readonly processes: ProcessServiceParts;
  readonly files: FileHandler;
  readonly ports: () => Promise<OpenPort[]>;
  readonly metrics: MetricsSource;
  readonly monotonicMs: () => number;
  /** Returns whether the machine has the name. */
  readonly applyHostname: (name: string) => Promise<boolean>;
  /** Returns whether the files were written. */
  readonly applyNames: (names: NameFiles) => boolean;
  /** Returns whether the limit is in force. */
  readonly limitProcesses: (most: number) => Promise<boolean>;
  /** Returns whether programs see this number of processors. */
  readonly showProcessors: (count: number) => Promise<boolean>;
  /** Returns whether programs that start from now on trust the authority. */
  readonly trustAuthority: (authority: Authority) => boolean;
  /** The port to dial from outside; undefined when no program listens. */
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
      if (path.startsWith(PROCESS_PREFIX)) return rpc(prepareForConnect(request, response), response);
      if (isFilePath(path)) return parts.files(request, response);
      return plainCall(parts, `${request.method} ${path}`, request, response);
    };
    answer().catch((thrown) => {
      request.resume();
      if (/^\/\w+\.\w+\//.test(path)) answerRpcError(response, thrown);
      else answerError(response, thrown);
    });
  };
}

/** Requires the access token or, for a single file, a signature made with it. */
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
    throw new TorporError('unauthenticated', 'The credential is wrong.');
  }
  const settings = await readMessage(request, InitRequestSchema);
  identity.apply(settings);
  metrics.restart();
  const { maxProcesses, processors } = settings;
  const [hostnameSet, namesSet, processesLimited, processorsSet] = await Promise.all([
    settings.hostname ? parts.applyHostname(settings.hostname) : false,
    parts.applyNames(settings),
    maxProcesses === undefined ? false : parts.limitProcesses(maxProcesses),
    processors === undefined ? false : parts.showProcessors(processors),
  ]);
  const answer = create(InitResponseSchema, {
    version: ENVD_VERSION,
    hostnameSet,
    namesSet,
    processesLimited,
    processorsSet,
    tagged: describeAll(parts.processes.table).filter(({ tag }) => tag !== undefined),
    succeeded: describeSucceeded(parts.processes.table),
  });
  answerJson(response, 200, toJson(InitResponseSchema, answer));
}

async function readMessage<D extends DescMessage>(
  request: IncomingMessage,
  schema: D,
): Promise<MessageShape<D>> {
  const body = parseJson(await readBody(request));
  try {
    return fromJson(schema, body, { ignoreUnknownFields: true });
  } catch (cause) {
    throw new TorporError('invalid_request', 'The body is not valid for this call.', { cause });
  }
}

async function plainCall(
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
      const tags = parseTags(parseJson(await readBody(request)));
      return answerJson(response, 200, await firstEnd(parts.processes.table, tags, left.signal));
    }
    case 'POST /turns':
      return answerJson(response, 200, await parts.turns.deliver(parseJson(await readBody(request))));
    case 'POST /trust': {
      const authority = await readMessage(request, TrustRequestSchema);
      if (!parts.trustAuthority(authority))
        throw new TorporError('capability_unsupported', 'The authority could not be added to this sandbox.');
      const { identity } = parts;
      identity.envs = { ...AUTHORITY_VARIABLES, ...identity.envs };
      return void response.writeHead(204).end();
    }
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
      throw new TorporError('not_found', 'There is no such path.');
  }
}
