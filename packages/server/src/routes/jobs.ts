/** Tracked jobs: the services and background processes of sandboxes. */
import { viewJob } from '@torpor/engine';
import {
  type AnyJobView,
  anyJobSchema,
  DEFAULT_GRACE_SECONDS,
  idSchema,
  JOB_STATES,
  type JobId,
  type JobState,
  MAX_GRACE_SECONDS,
  pageSchema,
  type SandboxId,
  TorporError,
  trackedJobSchema,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { ownerOf } from '../builds/route-schema.ts';
import { passOnToSandbox } from '../http/pass-on.ts';
import { errors, json, limitQuery, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { endJob } from '../sandbox/end-job.ts';

const tags = ['jobs'];
const params = z.object({ id: idSchema('job') });
const oneState = JOB_STATES.join('|');
const statesQuery = z
  .string()
  .regex(new RegExp(`^(?:${oneState})(?:,(?:${oneState}))*$`))
  .transform((text) => text.split(',') as JobState[])
  .meta({ description: 'Several states are separated by commas.' });

export function jobRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;

  app.get(
    '/v1/sandboxes/:id/jobs',
    {
      schema: {
        operationId: 'listJobs',
        summary: 'The services and background processes of a sandbox, newest first',
        description: 'Never wakes the sandbox. Ended jobs are kept for a while.',
        tags,
        params: sandboxParams,
        querystring: z.strictObject({
          limit: limitQuery,
          cursor: idSchema('job').optional(),
          state: statesQuery.optional(),
        }),
        response: { 200: json('One page.', pageSchema(trackedJobSchema)), ...errors('not_found') },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { limit, cursor, state = [] } = request.query;
      request.logFields.sandboxId = id;
      const { org } = request.identity;
      const page = await request.deadline.run(() => engine.jobs(org, id, state, cursor, limit));
      return { ...page, items: page.items.map(viewJob) };
    },
  );

  app.get(
    '/v1/jobs/:id',
    {
      schema: {
        operationId: 'getTrackedJob',
        summary: 'One job: a service, a background process, or a build',
        description:
          'Never wakes the sandbox. Builds have ids of the same kind. For a build the answer has its status and the ' +
          'address of its details in the builds API.',
        tags,
        params,
        response: { 200: json('The job.', anyJobSchema), ...errors('not_found') },
      },
    },
    (request) => request.deadline.run(() => anyJob(ctx, request, request.params.id)),
  );

  app.delete(
    '/v1/jobs/:id',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'endJob',
        summary: 'End a job',
        description:
          'Sends SIGTERM to its process group, and SIGKILL after the grace period. An ended job is returned ' +
          'unchanged. A paused sandbox is woken first; when its `autoResume` is off, the answer is `conflict`. A service ' +
          'that was ended starts again with the next start of its sandbox.',
        tags,
        params,
        querystring: z.strictObject({
          graceSeconds: z.coerce
            .number()
            .int()
            .min(0)
            .max(MAX_GRACE_SECONDS)
            .default(DEFAULT_GRACE_SECONDS)
            .meta({ description: '0 sends SIGKILL at once.' }),
        }),
        response: {
          200: json('The job has ended.', trackedJobSchema),
          ...errors(
            'not_found',
            'conflict',
            'transitioning',
            'killed',
            'lost',
            'capacity',
            'checkpoint_missing',
            'idempotency_mismatch',
          ),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const graceMs = request.query.graceSeconds * 1_000;
      if (await passOnToSandbox(ctx, request, reply, () => sandboxOf(ctx, request, id))) return reply;
      return ctx.replays.once(request, id, async () => {
        await refuseBuild(ctx, request, id);
        return { body: viewJob(await endJob(ctx, request, id, graceMs)) };
      });
    },
  );
}

/** Null for a build, and for a job that does not exist. */
async function sandboxOf(
  { engine }: RouteContext,
  request: FastifyRequest,
  id: JobId,
): Promise<SandboxId | null> {
  try {
    return (await engine.job(request.identity.org, id)).sandboxId;
  } catch (thrown) {
    if (isNotFound(thrown)) return null;
    throw thrown;
  }
}

async function anyJob(ctx: RouteContext, request: FastifyRequest, id: JobId): Promise<AnyJobView> {
  const { engine, builds } = ctx;
  try {
    return viewJob(await engine.job(request.identity.org, id));
  } catch (thrown) {
    if (builds === undefined || !isNotFound(thrown)) throw thrown;
  }
  const { status, sandbox_id: sandboxId } = await builds.status(ownerOf(request), id);
  return {
    id,
    kind: 'build',
    status,
    sandboxId: sandboxId as SandboxId | null,
    url: `/api/generation/${id}/status`,
  };
}

async function refuseBuild(ctx: RouteContext, request: FastifyRequest, id: JobId): Promise<void> {
  const job = await anyJob(ctx, request, id);
  if (job.kind !== 'build') return;
  throw new TorporError('conflict', `Job ${id} is a build and cannot be ended here.`, {
    hint: `Cancel it with POST /api/generation/${id}/cancel.`,
  });
}

function isNotFound(thrown: unknown): boolean {
  return thrown instanceof TorporError && thrown.code === 'not_found';
}
