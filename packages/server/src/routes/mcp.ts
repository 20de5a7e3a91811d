/**
 * `/mcp`: sandboxes as tools for models, by streamable HTTP. The tools call the API of this server with the key of the
 * request, so a model can do nothing that its key cannot do. The query of the address narrows that further.
 */
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import type { Endpoint } from '@torpor/mcp';
import { TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { RoutesApp } from '../http/routes-app.ts';
import { noValidKey } from '../keys/identity.ts';
import { ownFetch } from '../mcp/own-fetch.ts';
import { isFromOwnPage } from '../page/same-origin.ts';
import type { RouteContext } from '../route-context.ts';

/** The flags of `torpor mcp`. */
const limitsSchema = z.strictObject({
  // It becomes a value of the metadata.
  label: z.string().min(1).max(1_024).default('default'),
  allSandboxes: z.stringbool().default(false),
  readOnly: z.stringbool().default(false),
  maxSandboxes: z.coerce.number().int().min(0).max(1_000_000).optional(),
  network: z.enum(['none', 'internet']).optional(),
  template: z
    .union([z.string(), z.array(z.string())])
    .transform((given) => [given].flat())
    .default([]),
});

export function mcpRoutes(app: RoutesApp, ctx: RouteContext): void {
  let opened: Promise<Endpoint> | undefined;
  // Loaded with the first request: the libraries are large, and most servers have no such client.
  const endpoint = () => {
    opened ??= import('@torpor/mcp').then(({ openEndpoint }) =>
      openEndpoint({
        version: ctx.version,
        report: (error) => ctx.log.info({ event: 'mcp', error }, 'a request to /mcp was refused'),
      }),
    );
    return opened;
  };

  app.route({
    method: ['GET', 'POST', 'DELETE'],
    url: '/mcp',
    // Each call of a tool is checked by itself: a read-only key gets the tools that change nothing.
    config: { changes: false },
    schema: { hide: true, querystring: limitsSchema },
    handler: async (request, reply) => {
      refuseOtherPages(request);
      const apiKey = keyOf(request);
      const { identity, method, query, body } = request;
      // A call may stream progress for as long as its command runs.
      ctx.streamLimit.take(request, reply);
      const { answer } = await request.deadline.run(endpoint);
      request.deadline.release();
      const response = await answer(
        webRequest(ctx, request),
        {
          apiKey,
          user: identity.service ? identity.subject : undefined,
          limits: {
            templates: query.template,
            network: query.network === undefined ? undefined : { mode: query.network },
            readOnly: query.readOnly || identity.readOnly,
            maxSandboxes: query.maxSandboxes,
            label: query.label,
            allSandboxes: query.allSandboxes,
            org: identity.org,
          },
          fetch: ownFetch({
            address: addressOf(app),
            secure: ctx.tls !== undefined,
            headers: traceOf(request),
          }),
        },
        method === 'POST' ? body : undefined,
      );
      // HTTP/2 has no such header.
      const { connection: _, ...headers } = Object.fromEntries(response.headers);
      reply.code(response.status).headers(headers);
      return reply.send(response.body === null ? null : Readable.fromWeb(response.body as never));
    },
  });
}

/** A page on another site cannot read a key, but a browser may hold one for it. */
function refuseOtherPages({ method, headers }: FastifyRequest): void {
  const byBrowser = headers.origin !== undefined || headers['sec-fetch-site'] !== undefined;
  if (byBrowser && !isFromOwnPage(method, headers))
    throw new TorporError('forbidden', 'A page of another site may not use this endpoint.');
}

/** The key is passed on to the calls of the tools. A sign-in at the page is none. */
function keyOf({ headers }: FastifyRequest): string {
  const plain = headers['x-api-key'];
  const key = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? plain;
  if (typeof key !== 'string') throw noValidKey();
  return key;
}

/** The handler is given the parsed body, so the request needs none. */
function webRequest({ forcedStop }: RouteContext, request: FastifyRequest): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers))
    if (!name.startsWith(':')) for (const one of [value ?? []].flat()) headers.append(name, one);
  const signal = AbortSignal.any([request.deadline.signal, forcedStop]);
  return new Request('http://localhost/mcp', { method: request.method, headers, signal });
}

function addressOf(app: RoutesApp): AddressInfo {
  const address = app.server.address();
  if (typeof address === 'object' && address !== null) return address;
  throw new TorporError('unreachable', 'The server does not listen yet.');
}

/** The operations that a call begins belong to the trace of the caller. */
function traceOf({ headers: { traceparent } }: FastifyRequest): Record<string, string> {
  return typeof traceparent === 'string' ? { traceparent } : {};
}
