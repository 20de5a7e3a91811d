/** Sign-in and sign-out of a browser at the page, one-time links to it, and who a request acts as. */
import type { Http2ServerRequest } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import {
  identityViewSchema,
  pageLinkRequestSchema,
  pageLinkSchema,
  type SignInRequest,
  signedInSchema,
  signInRequestSchema,
  TorporError,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { identify } from '../keys/identity.ts';
import { setPageCookie } from '../page/page-cookie.ts';
import { pageLink } from '../page/page-link.ts';
import type { SessionKey } from '../page/page-sessions.ts';
import { isFromOwnPage } from '../page/same-origin.ts';
import type { RouteContext } from '../route-context.ts';

export function pageSessionRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { pageSessions, settings } = ctx;
  const tags = ['page'];

  app.post(
    '/v1/page/session',
    {
      config: { access: 'open' },
      schema: {
        operationId: 'signIn',
        summary: 'Sign a browser in at the page',
        description:
          'With an API key, or with the code of a one-time link. The answer sets a cookie and has a token; requests ' +
          'need both. Only pages of this server may ask.',
        tags,
        security: [],
        body: signInRequestSchema,
        response: { 201: json('The browser is signed in.', signedInSchema), ...errors() },
      },
    },
    async (request, reply) => {
      requireOwnPage(request);
      const key = await request.deadline.run(() => sessionKeyOf(ctx, request.body));
      const { cookie, token, expiresAt } = pageSessions.open(key);
      reply.header('set-cookie', setPageCookie(cookie, settings.pageSessionMs, isSecure(request)));
      return reply.code(201).send({ token, expiresAt });
    },
  );

  app.delete(
    '/v1/page/session',
    {
      config: { access: 'open' },
      schema: {
        operationId: 'signOut',
        summary: 'Sign this browser out of the page',
        tags,
        security: [],
        response: { 204: z.null().meta({ description: 'The cookie is removed.' }), ...errors() },
      },
    },
    async (request, reply) => {
      requireOwnPage(request);
      return reply
        .header('set-cookie', setPageCookie('', 0, isSecure(request)))
        .code(204)
        .send(null);
    },
  );

  app.post(
    '/v1/page/links',
    {
      schema: {
        operationId: 'createPageLink',
        summary: 'A link that signs one browser in at the page',
        description: 'The link works once, and acts with the key of this request.',
        tags,
        body: pageLinkRequestSchema,
        response: { 201: json('The link.', pageLinkSchema), ...errors() },
      },
    },
    async (request, reply) => {
      const { readOnly = false } = request.body;
      const { code, expiresAt } = await pageSessions.makeLink({ ...request.identity, readOnly });
      const origin = `${isSecure(request) ? 'https' : 'http'}://${request.headers[':authority'] ?? request.host}`;
      return reply.code(201).send({ url: pageLink(origin, code), expiresAt });
    },
  );

  app.get(
    '/v1/identity',
    {
      schema: {
        operationId: 'getIdentity',
        summary: 'The organisation, user and rights of this request',
        tags: ['keys'],
        response: { 200: json('The identity.', identityViewSchema), ...errors() },
      },
    },
    async ({ identity: { org, subject, keyId, service, operator, readOnly } }) => ({
      org,
      subject,
      keyId,
      service,
      operator,
      readOnly,
    }),
  );
}

/** Another site must not sign a browser in under its own key, nor out. */
function requireOwnPage({ method, headers }: FastifyRequest): void {
  if (!isFromOwnPage(method, headers)) {
    throw new TorporError('forbidden', 'Only the page of this server may sign a browser in or out.', {
      hint: 'Programs send an API key with each request. A reverse proxy must pass the Host header on.',
    });
  }
}

async function sessionKeyOf(
  { db, clock, pageSessions }: RouteContext,
  request: SignInRequest,
): Promise<SessionKey> {
  if ('key' in request) {
    const { readOnly = false } = request;
    return { ...(await identify(db, clock, { 'x-api-key': request.key })), readOnly };
  }
  const key = await pageSessions.useLink(request.link);
  if (key !== undefined) return key;
  throw new TorporError('unauthenticated', 'This link was used before, or has expired.', {
    hint: 'Sign in with an API key, or run "npx torpor page" for another link.',
  });
}

/** A proxy that ends TLS says so; a client that lies harms only its own cookie. */
function isSecure({ raw, headers }: FastifyRequest): boolean {
  const { encrypted } = (raw as unknown as Http2ServerRequest).socket as Partial<TLSSocket>;
  return encrypted === true || headers['x-forwarded-proto'] === 'https';
}
