/** `POST …/{id}/preview-links`: gives a browser without a key access to a private preview. */
import { LINK_PARAMETER } from '@torpor/gateway';
import {
  PREVIEW_TOKEN_HEADER,
  previewLinkRequestSchema,
  previewLinkSchema,
  TorporError,
} from '@torpor/protocol';
import { errors, json, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function previewLinkRoutes(app: RoutesApp, { engine, gateway }: RouteContext): void {
  app.post(
    '/v1/sandboxes/:id/preview-links',
    {
      schema: {
        operationId: 'createPreviewLink',
        summary: 'A link that lets one browser see a port of a sandbox',
        description:
          'The link works once and sets a cookie in that browser. Programs send `token` in the header that the answer ' +
          'names. A public preview needs neither. Each call makes a new link, also with the same idempotency key.',
        tags: ['sandboxes'],
        params: sandboxParams,
        body: previewLinkRequestSchema,
        response: {
          201: json('The link.', previewLinkSchema),
          ...errors('not_found', 'killed', 'capability_unsupported'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { port, expiresInSeconds } = request.body;
      request.logFields.sandboxId = id;
      if (gateway === undefined)
        throw new TorporError('capability_unsupported', 'This server has no previews.');
      const sandbox = await request.deadline.run(() => engine.get(request.identity.org, id));
      if (sandbox.state === 'killed')
        throw new TorporError('killed', 'The sandbox was killed.', { sandboxId: id });
      const address = gateway.urlOf(id, port);
      const { token, expiresAt } = gateway.link(id, expiresInSeconds);
      const isPrivate = sandbox.preview === 'private';
      return reply.code(201).send({
        url: isPrivate ? `${address}/?${LINK_PARAMETER}=${token}` : `${address}/`,
        expiresAt: isPrivate ? expiresAt : null,
        token: gateway.tokens.previewToken(id),
        header: PREVIEW_TOKEN_HEADER,
      });
    },
  );
}
