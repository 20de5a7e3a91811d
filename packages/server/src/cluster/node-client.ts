/** Requests of this node to another node on its own behalf, not on a client's. Only nodes can send them. */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import type { HandOver, NodeAddress } from '@torpor/engine';
import type { HopSigner } from '@torpor/gateway';
import { TorporError } from '@torpor/protocol';

/** The path of `routes/hand-over.ts`. */
export function handOverPath(sandboxId: string, org: string): string {
  return `/v1/cluster/sandboxes/${sandboxId}/resume?org=${encodeURIComponent(org)}`;
}

export function handOverThrough(signer: HopSigner): HandOver {
  return async (to, { id, org }) => {
    await post(signer, to, handOverPath(id, org));
  };
}

const THIS_NODE = { remoteAddress: '', scheme: 'http', localPort: 0 } as const;

async function post(signer: HopSigner, { node, address }: NodeAddress, target: string): Promise<void> {
  const url = new URL(target, address);
  const signed = { method: 'POST', target, host: url.host };
  const { status, body } = await new Promise<{ status: number; body: string }>((resolve, reject) => {
    const outgoing = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, {
      method: 'POST',
      headers: { host: url.host, 'content-length': '0', 'torpor-hop': signer.sign(node, signed, THIS_NODE) },
      agent: false,
    });
    outgoing.on('response', (response) => {
      text(response).then((answer) => resolve({ status: response.statusCode ?? 0, body: answer }), reject);
    });
    outgoing.on('error', (cause) =>
      reject(
        new TorporError('unreachable', `The node "${node}" does not answer.`, { details: { node }, cause }),
      ),
    );
    outgoing.end();
  });
  if (status >= 200 && status < 300) return;
  throw (
    errorIn(body) ??
    new TorporError('unreachable', `The node "${node}" answered with ${status}.`, { details: { node } })
  );
}

function errorIn(body: string): TorporError | undefined {
  try {
    const { error } = JSON.parse(body) as { error?: Parameters<typeof TorporError.fromBody>[0] };
    return error === undefined ? undefined : TorporError.fromBody(error);
  } catch {
    return undefined;
  }
}
