/** `GET /` for browsers: the page, and the files that it loads. Programs that ask for `/` get the usual 404. */
import { TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { RoutesApp } from '../http/routes-app.ts';
import { brokenPageHtml, type PageDocument, pageHeaders, pageHtml } from '../page/page-html.ts';
import type { RouteContext } from '../route-context.ts';

const HTML = 'text/html; charset=utf-8';

export function pageRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { page } = ctx;
  if (page === undefined) return;

  app.get('/', { config: { access: 'page' }, schema: { hide: true } }, async (request, reply) => {
    // With a key the request comes from a program.
    if (request.identity) throw new TorporError('not_found', 'Nothing is at /.');
    return answerPage(ctx, page, reply);
  });

  app.get(
    '/page/:file',
    {
      config: { access: 'open' },
      schema: { hide: true, params: z.object({ file: z.string().regex(/^[\w.-]{1,100}$/) }) },
    },
    async (request, reply) => {
      const file = (await page()).files.get(request.params.file);
      if (file === undefined) throw new TorporError('not_found', 'The page has no such file.');
      const encoding = ENCODINGS.find((name) => accepts(request, name));
      reply.headers({
        'content-type': file.type,
        // The name of a file contains a hash of its contents.
        'cache-control': 'public, max-age=31536000, immutable',
        'x-content-type-options': 'nosniff',
        'cross-origin-resource-policy': 'same-origin',
        vary: 'accept-encoding',
      });
      if (encoding === undefined) return reply.send(file.bytes);
      return reply.header('content-encoding', encoding).send(file[encoding]);
    },
  );
}

async function answerPage(
  { gateway, randomBytes, log }: RouteContext,
  page: NonNullable<RouteContext['page']>,
  reply: FastifyReply,
) {
  const document: PageDocument = {
    nonce: Buffer.from(randomBytes(16)).toString('base64'),
    previews: gateway?.previewOrigins,
  };
  reply.headers(pageHeaders(document)).type(HTML);
  try {
    return reply.send(pageHtml(await page(), document));
  } catch (thrown) {
    log.error({ event: 'page', error: thrown }, 'the page could not be built');
    return reply.code(503).send(brokenPageHtml(String(thrown)));
  }
}

const ENCODINGS = ['br', 'gzip'] as const;

function accepts({ headers }: FastifyRequest, encoding: string): boolean {
  const accepted = String(headers['accept-encoding'] ?? '').split(',');
  return accepted.some((part) => part.trim().split(';')[0] === encoding && !/;\s*q=0(\.0*)?$/.test(part));
}
