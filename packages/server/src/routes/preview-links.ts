/** `POST …/{id}/preview-links`: how somebody without a key gets to see a private preview. */
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
          'It works once, and then sets a cookie for that browser. Programs send `token` in the header that is ' +
          'named instead. A public preview needs neither. Each call makes a new link, under whatever key.',
        tags: ['sandboxes'],
        params: sandboxParams,
        body: previewLinkRequestSchema,
        response: {
          201: json('Made.', previewLinkSchema),
          ...errors('not_found', 'killed', 'capability_unsupported'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { port, expiresInSeconds } = request.body;
      request.logFields.sandboxId = id;
      if (gateway === undefined)
        throw new TorporError('capability_unsupported', 'There are no previews here.');
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
