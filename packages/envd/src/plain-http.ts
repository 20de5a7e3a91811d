/** One HTTP exchange with an agent, over TCP or a unix socket. The answer is bounded and untrusted. */
import { type Agent, type IncomingMessage, request as requestPlain } from 'node:http';
import { request as requestTls } from 'node:https';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import type { DescMessage, JsonValue, MessageShape } from '@bufbuild/protobuf';
import { fromJson } from '@bufbuild/protobuf';
import { TorporError } from '@torpor/protocol';
import { agentError, errorOfStatus } from './agent-errors.ts';
import { UNKNOWN_USER_HEADER } from './wire-names.ts';

export interface AgentAddress {
  /** An http or https origin. With a socket path, host and port are not used. */
  readonly baseUrl: string;
  readonly socketPath?: string | undefined;
  readonly pool: Agent;
}

export interface PlainCall {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Readable | Uint8Array | string | undefined;
  readonly signal?: AbortSignal | undefined;
}

const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** The caller must read the body of the answer. Throws for any status but 2xx. */
export async function exchange(address: AgentAddress, call: PlainCall): Promise<IncomingMessage> {
  const response = await send(address, call).catch((error) => {
    throw agentError(error);
  });
  const status = response.statusCode ?? 0;
  if (status >= 200 && status < 300) return response;
  const isUnknownUser = response.headers[UNKNOWN_USER_HEADER] !== undefined;
  throw errorOfStatus(status, await messageOf(response, status), isUnknownUser);
}

/** The answer as JSON. Throws `internal` when it is not JSON or too long. */
export async function exchangeJson(address: AgentAddress, call: PlainCall): Promise<JsonValue> {
  const response = await exchange(address, call);
  const text = (await readBounded(response)).toString('utf8');
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new TorporError('internal', 'The agent answered with something that is not JSON.', { cause });
  }
}

export async function exchangeMessage<D extends DescMessage>(
  address: AgentAddress,
  call: PlainCall,
  schema: D,
): Promise<MessageShape<D>> {
  const json = await exchangeJson(address, call);
  try {
    return fromJson(schema, json, { ignoreUnknownFields: true });
  } catch (cause) {
    throw new TorporError('internal', `The agent answered ${call.path} in an unknown form.`, { cause });
  }
}

function send(address: AgentAddress, call: PlainCall): Promise<IncomingMessage> {
  const url = new URL(call.path, address.baseUrl);
  for (const [name, value] of Object.entries(call.query ?? {})) {
    if (value !== undefined) url.searchParams.set(name, value);
  }
  return new Promise((resolve, reject) => {
    const outgoing = (url.protocol === 'https:' ? requestTls : requestPlain)(url, {
      method: call.method,
      headers: call.headers,
      agent: address.pool,
      socketPath: address.socketPath,
      signal: call.signal,
    });
    outgoing.on('response', resolve);
    outgoing.on('error', reject);
    if (call.body instanceof Readable) {
      pipeline(call.body, outgoing).catch((error) => {
        outgoing.destroy();
        reject(error);
      });
    } else outgoing.end(call.body);
  });
}

async function messageOf(response: IncomingMessage, status: number): Promise<string> {
  const text = (await readBounded(response)).toString('utf8');
  try {
    const said: unknown = JSON.parse(text);
    const message = typeof said === 'object' && said !== null && 'message' in said ? said.message : undefined;
    if (typeof message === 'string' && message !== '') return message;
  } catch {
    // The body is not an agent's error; use the status.
  }
  return `The agent answered with status ${status}.`;
}

async function readBounded(response: IncomingMessage): Promise<Buffer> {
  let size = 0;
  response.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) {
      response.destroy(new TorporError('internal', 'The answer of the agent is too long.'));
    }
  });
  return buffer(response).catch((error) => {
    throw agentError(error);
  });
}
