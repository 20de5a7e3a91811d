/**
 * File URLs that E2B's SDK signs itself. When the SDK is configured with one address for all sandboxes, these URLs do
 * not name the sandbox. The signature identifies it, because it is made with that sandbox's token.
 */
import { makeSignature, sameSecret } from '@torpor/envd';
import type { ClientResponse } from '@torpor/gateway';
import { Mutex } from '@torpor/host';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

const AGENT_PORT = 49_983;
const SIGNATURE = /^v1_[A-Za-z0-9+/]{43}$/;
const PAGE = 500;
const ALIVE = ['running', 'pausing', 'paused', 'resuming'] as const;

export function e2bSignedFileRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { gateway } = ctx;
  if (gateway === undefined) return;
  /** Searches run one at a time, because a search needs no key. */
  const searches = new Mutex();

  const pass = async (request: FastifyRequest, reply: FastifyReply) => {
    const query = new URL(request.url, 'http://localhost').searchParams;
    const signature = query.get('signature') ?? '';
    if (signature === '') throw refused('missing signature query parameter');
    if (!SIGNATURE.test(signature)) throw refused('invalid signature');
    const sandboxId = await request.deadline.run((signal) =>
      searches.run(async () => {
        // The client may have gone away while its search waited.
        signal.throwIfAborted();
        return findSigner(ctx, request.method, query);
      }),
    );
    if (sandboxId === undefined) throw refused('invalid signature');
    request.logFields.sandboxId = sandboxId;
    request.deadline.release();
    // The body is for the sandbox and has not been read.
    reply.hijack();
    gateway.handleFor(sandboxId, AGENT_PORT, request.raw, reply.raw as ClientResponse);
  };
  for (const method of ['GET', 'POST'] as const) {
    app.route({
      method,
      url: '/files',
      config: { access: 'signed' },
      schema: { hide: true },
      onRequest: pass,
      handler: async (_, reply) => reply,
    });
  }
}

function refused(why: string): TorporError {
  return new TorporError('unauthenticated', why);
}

/** Tries the token of every sandbox that is not ended. Tokens are not stored: each is derived from the sandbox id. */
async function findSigner(
  { engine, gateway }: RouteContext,
  method: string,
  query: URLSearchParams,
): Promise<SandboxId | undefined> {
  const expiration = query.get('signature_expiration');
  const file = {
    path: query.get('path') ?? '',
    operation: method === 'POST' ? 'write' : 'read',
    user: query.get('username') ?? undefined,
    expiration: expiration === null ? undefined : Number(expiration),
  } as const;
  const signature = query.get('signature') ?? '';
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page = await engine.list({ states: ALIVE }, cursor, PAGE);
    for (const { id } of page.items) {
      const token = gateway?.tokens.accessToken(id) ?? '';
      if (sameSecret(signature, makeSignature(file, token))) return id;
    }
    cursor = page.nextCursor;
  }
  return undefined;
}
