/** `/api/generation`: start, inspect, cancel and repeat a build, and read its files. */
import type { Builds } from '@torpor/builds';
import {
  buildCancelledSchema,
  buildDocsSchema,
  buildFilesSchema,
  buildRequestSchema,
  buildStartedSchema,
  buildStatusSchema,
  TorporError,
} from '@torpor/protocol';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { FILE_HEADERS } from '../http/file-headers.ts';
import { json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { buildErrors, jobParams, onceUnderKey, ownerOf, startErrors } from './route-schema.ts';

const tags = ['builds'];
const filesQuery = z.strictObject({ path: z.string().min(1).max(512).optional() });
const bytes = { 'application/octet-stream': { schema: z.string().meta({ format: 'binary' }) } };

export function generationRoutes(app: RoutesApp, ctx: RouteContext, builds: Builds): void {
  app.post(
    '/api/generation/start',
    {
      schema: {
        operationId: 'startBuild',
        summary: 'Turn a goal into a preview',
        description: 'With `previous_job_id` the build is an iteration and starts from a fork of that build.',
        tags,
        body: buildRequestSchema,
        response: {
          201: json('The build is queued, or scheduled for tomorrow.', buildStartedSchema),
          ...startErrors,
        },
      },
    },
    async (request, reply) => {
      const { body } = request;
      return reply
        .code(201)
        .send(await onceUnderKey(ctx, request, () => builds.begin(ownerOf(request), body)));
    },
  );

  app.get(
    '/api/generation/:id/status',
    {
      schema: {
        operationId: 'getBuild',
        summary: 'The progress of a build and the address of its preview',
        tags,
        params: jobParams,
        response: { 200: json('The current status.', buildStatusSchema), ...buildErrors('not_found') },
      },
    },
    (request) => request.deadline.run(() => builds.status(ownerOf(request), request.params.id)),
  );

  app.post(
    '/api/generation/:id/cancel',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'cancelBuild',
        summary: 'Stop a build in any stage',
        tags,
        params: jobParams,
        response: {
          200: json('The build is failed and its sandboxes are killed.', buildCancelledSchema),
          ...buildErrors('not_found', 'conflict', 'idempotency_mismatch'),
        },
      },
    },
    (request) => onceUnderKey(ctx, request, () => builds.cancel(ownerOf(request), request.params.id)),
  );

  app.post(
    '/api/generation/:id/rebuild',
    {
      schema: {
        operationId: 'rebuild',
        summary: 'Start a new build from the goal and the files of a finished one',
        tags,
        params: jobParams,
        response: {
          201: json('The new build. The old one does not change.', buildStartedSchema),
          ...buildErrors('not_found', 'conflict', 'quota_exceeded', 'capacity', 'idempotency_mismatch'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      return reply
        .code(201)
        .send(await onceUnderKey(ctx, request, () => builds.rebuild(ownerOf(request), id)));
    },
  );

  app.get(
    '/api/generation/:id/docs',
    {
      schema: {
        operationId: 'getBuildDocs',
        summary: 'The documentation of a build',
        description:
          'Taken from the texts in the application, from the scripts of its package.json, and from the builds that it ' +
          'continues. A section without any source is null.',
        tags,
        params: jobParams,
        response: {
          200: json('Five sections in Markdown.', buildDocsSchema),
          ...buildErrors('not_found', 'expired'),
        },
      },
    },
    (request) => request.deadline.run(() => builds.docs(ownerOf(request), request.params.id)),
  );

  app.get(
    '/api/generation/:id/files',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'getBuildFiles',
        summary: 'The files that the runner made: their names, or the contents of one',
        description:
          'The files as the runner made them, also of a failed build, for as long as the server keeps them.',
        tags,
        params: jobParams,
        querystring: filesQuery,
        response: {
          200: {
            description: 'All files by name. With `path`, the bytes of one file.',
            content: { 'application/json': { schema: buildFilesSchema }, ...bytes },
          },
          ...buildErrors('not_found', 'expired'),
        },
      },
    },
    async (request, reply) => {
      const files = await request.deadline.run(() => builds.files(ownerOf(request), request.params.id));
      const { path } = request.query;
      if (path === undefined) {
        const items = files.map(({ path, content, executable }) => ({
          path,
          size: content.length,
          executable,
        }));
        return { items };
      }
      const file = files.find((one) => one.path === path);
      if (file === undefined) throw new TorporError('not_found', 'This build has no such file.');
      return sendFile(reply, file.content);
    },
  );
}

function sendFile(reply: FastifyReply, content: Uint8Array): FastifyReply {
  return reply.headers(FILE_HEADERS).send(Buffer.from(content));
}
