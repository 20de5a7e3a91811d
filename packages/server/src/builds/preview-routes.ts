/** `/api/generation/{id}`: wake, pause and check the preview of a build. */
import { type Builds, ResumeFailed } from '@torpor/builds';
import {
  buildResumedSchema,
  buildSnapshotSchema,
  previewCheckSchema,
  previewViewedSchema,
  TorporError,
} from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { passOnToSandbox } from '../http/pass-on.ts';
import { json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { buildErrors, jobParams, ownerOf, refusal } from './route-schema.ts';

const tags = ['builds'];
const config = { deadline: 'lifecycle' } as const;

/** A preview is woken and paused on the node of its sandbox, where concurrent requests can share an attempt. */
export function previewRoutes(app: RoutesApp, ctx: RouteContext, builds: Builds): void {
  const isPassedOn = (request: FastifyRequest, reply: FastifyReply, id: string) =>
    passOnToSandbox(ctx, request, reply, () => builds.previewSandbox(ownerOf(request), id));

  app.post(
    '/api/generation/:id/resume',
    {
      config,
      schema: {
        operationId: 'resumeBuild',
        summary: 'Wake the preview of a build',
        description: 'Concurrent requests share one wake and get the same answer.',
        tags,
        params: jobParams,
        response: {
          200: json('The preview answers at this address.', buildResumedSchema),
          ...buildErrors('not_found'),
          503: refusal('`sandbox_expired`: rebuild it. `sandbox_unreachable`: try again.'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      if (await isPassedOn(request, reply, id)) return reply;
      return request.deadline
        .run(() => builds.resume(ownerOf(request), id))
        .catch((thrown: unknown) => {
          // The wake continues and the next request joins it. The timeout proves nothing about the sandbox.
          const late = thrown instanceof TorporError && thrown.code === 'timeout';
          throw late ? new ResumeFailed('sandbox_unreachable', undefined, thrown) : thrown;
        });
    },
  );

  app.post(
    '/api/generation/:id/snapshot',
    {
      config,
      schema: {
        operationId: 'snapshotBuild',
        summary: 'Put the preview of a build to sleep',
        description: 'Repeated requests get the same answer. `snapshot.outcome` says whether it succeeded.',
        tags,
        params: jobParams,
        response: {
          200: json('The outcome.', buildSnapshotSchema),
          ...buildErrors('not_found'),
          422: refusal('The build is not ready.'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      if (await isPassedOn(request, reply, id)) return reply;
      return request.deadline.run(() => builds.snapshot(ownerOf(request), id));
    },
  );

  app.get(
    '/api/generation/:id/preview-check',
    {
      config: { ...config, changes: true },
      schema: {
        operationId: 'checkPreview',
        summary: 'Whether the preview may be shown inside another page',
        description: 'Requests the headers of the preview, which wakes it.',
        tags,
        params: jobParams,
        response: {
          200: json('What the headers of the preview allow.', previewCheckSchema),
          ...buildErrors('not_found'),
        },
      },
    },
    (request) => request.deadline.run(() => builds.previewCheck(ownerOf(request), request.params.id)),
  );

  app.post(
    '/api/generation/:id/preview-viewed',
    {
      schema: {
        operationId: 'viewPreview',
        summary: 'Record that a user has seen the preview',
        tags,
        params: jobParams,
        response: {
          200: json('Whether it was the first time.', previewViewedSchema),
          ...buildErrors('not_found'),
          422: refusal('The build is not ready.'),
        },
      },
    },
    async (request) => {
      const first = await request.deadline.run(() =>
        builds.previewViewed(ownerOf(request), request.params.id),
      );
      return { gate_id: null, status: first ? ('gate_created' as const) : ('gate_already_created' as const) };
    },
  );
}
