/** Another node fetches an upload for a template build. Only nodes can: the request is signed with the cluster secret. */
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { UPLOAD_DIGEST_HEADER } from '../cluster/remote-uploads.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function templateFileRoutes(app: RoutesApp, { templateBuilds }: RouteContext): void {
  app.get(
    '/v1/cluster/template-files/:hash',
    {
      exposeHeadRoute: false,
      config: { access: 'node' },
      schema: {
        hide: true,
        params: z.object({ hash: z.string().regex(/^[0-9a-f]{64}$/) }),
        querystring: z.object({ org: z.string().min(1).max(255) }),
      },
    },
    async (request, reply) => {
      const { hash } = request.params;
      const found = await request.deadline.run(() => templateBuilds.files.own(request.query.org, hash));
      if (found === undefined) throw new TorporError('not_found', 'This node does not have the upload.');
      request.deadline.release();
      return reply
        .header(UPLOAD_DIGEST_HEADER, found.sha256)
        .type('application/octet-stream')
        .send(found.content as never);
    },
  );
}
