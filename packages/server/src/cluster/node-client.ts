/** Requests of this node to another node on its own behalf, not on a client's. Only nodes can send them. */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import type { HandOver, NodeAddress } from '@torpor/engine';
import type { HopSigner } from '@torpor/gateway';
import { isErrorBody, TorporError } from '@torpor/protocol';
import { z } from 'zod';

interface NodeRequest {
  readonly method: 'GET' | 'POST';
  /** Path and query. */
  readonly target: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Ends the waiting, not what the other node does. */
  readonly signal?: AbortSignal | undefined;
}

const answerSchema = z.object({ error: z.unknown() });

const THIS_NODE = { remoteAddress: '', scheme: 'http', localPort: 0 } as const;

/** Sends a request, and resolves when the other node has answered with success. The caller must read the body. */
export async function askNode(
  signer: HopSigner,
  { node, address }: NodeAddress,
  { method, target, body, signal }: NodeRequest,
): Promise<IncomingMessage> {
  const url = new URL(target, address);
  const content = body === undefined ? '' : JSON.stringify(body);
  const signed = { method, target, host: url.host };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, {
      method,
      headers: {
        host: url.host,
        'torpor-hop': signer.sign(node, signed, THIS_NODE),
        'content-length': Buffer.byteLength(content),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      agent: false,
      signal,
    });
    let isConnected = false;
    outgoing.on('socket', (socket) => socket.once('connect', () => (isConnected = true)));
    outgoing.on('response', resolve);
    outgoing.on('error', (cause) =>
      reject(signal?.aborted === true ? signal.reason : noAnswer(node, isConnected, cause)),
    );
    outgoing.end(content);
  });
  const status = response.statusCode ?? 0;
  if (status >= 200 && status < 300) return response;
  throw (
    errorIn(await text(response)) ??
    new TorporError('unreachable', `The node "${node}" answered with ${status}.`, { details: { node } })
  );
}

export function handOverThrough(signer: HopSigner): HandOver {
  return async (to, { id, org }, signal) => {
    const target = `/v1/cluster/sandboxes/${id}/resume?org=${encodeURIComponent(org)}`;
    (await askNode(signer, to, { method: 'POST', target, signal })).resume();
  };
}

function noAnswer(node: string, isConnected: boolean, cause: unknown): TorporError {
  return new TorporError('unreachable', `The node "${node}" does not answer.`, {
    retryAfterMs: 1_000,
    details: { node, dispatched: isConnected ? 'unknown' : false },
    cause,
  });
}

function errorIn(body: string): TorporError | undefined {
  try {
    const { error } = answerSchema.parse(JSON.parse(body));
    return isErrorBody(error) ? TorporError.fromBody(error) : undefined;
  } catch {
    return undefined;
  }
}
