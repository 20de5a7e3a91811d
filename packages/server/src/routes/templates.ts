/** Templates: a name for a checkpoint, or made from the archive of a root filesystem. */
import {
  createTemplateRequestSchema,
  nameSchema,
  pageSchema,
  type TemplateDefinition,
  type TemplateView,
  TorporError,
  templateDefinitionSchema,
  templateViewSchema,
} from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { idempotencyKeyOf } from '../http/caller.ts';
import { HttpRefusal } from '../http/error-answer.ts';
import { parseJson } from '../http/json-body.ts';
import { onResponseClosed } from '../http/on-response-closed.ts';
import { RequestDeadline } from '../http/request-deadline.ts';
import { errors, json, unpagedQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { withStallTimeout } from '../http/stall-timeout.ts';
import type { RouteContext } from '../route-context.ts';

/** Also compressed with gzip or zstd; the first bytes tell. */
export const TAR = 'application/x-tar';

/** Placeholder for a body that has not been read yet. */
class Archive {}

const templateParams = z.object({ name: nameSchema });

const archiveQuery = z.strictObject({
  name: nameSchema.optional(),
  runtime: nameSchema.optional(),
  definition: z
    .string()
    .max(16_384)
    .transform(readDefinition)
    .pipe(templateDefinitionSchema)
    .optional()
    .meta({ description: 'With an archive: a `TemplateDefinition` as JSON.' }),
});
type ArchiveQuery = z.infer<typeof archiveQuery>;

function readDefinition(text: string, context: z.core.$RefinementCtx): TemplateDefinition {
  try {
    return parseJson(text) as TemplateDefinition;
  } catch (thrown) {
    context.addIssue({ code: 'custom', message: TorporError.from(thrown).message });
    return z.NEVER;
  }
}

export function templateRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine, replays } = ctx;
  const tags = ['catalogue'];

  app.get(
    '/v1/templates',
    {
      schema: {
        operationId: 'listTemplates',
        summary: 'Templates to create sandboxes from',
        tags,
        querystring: z.strictObject(unpagedQuery),
        response: { 200: json('All templates.', pageSchema(templateViewSchema)), ...errors() },
      },
    },
    async (request) => {
      const items = await request.deadline.run(() => engine.templates(request.identity.org));
      return { items, nextCursor: null };
    },
  );

  app.get(
    '/v1/templates/:name',
    {
      schema: {
        operationId: 'getTemplate',
        summary: 'One template, with the progress of its preparation',
        tags,
        params: templateParams,
        response: { 200: json('The template.', templateViewSchema), ...errors('not_found') },
      },
    },
    async (request) => request.deadline.run(() => engine.template(request.identity.org, request.params.name)),
  );

  app.delete(
    '/v1/templates/:name',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'deleteTemplate',
        summary: 'Delete a template; its sandboxes do not change',
        tags,
        params: templateParams,
        response: {
          204: z.null().meta({ description: 'The template is deleted.' }),
          ...errors('not_found', 'forbidden', 'transitioning', 'idempotency_mismatch'),
        },
      },
    },
    async (request, reply) => {
      const { name } = request.params;
      await request.deadline.run(() =>
        replays.once(request, name, async () => {
          await engine.deleteTemplate(request.identity.org, name);
          return { body: null };
        }),
      );
      return reply.code(204).send(null);
    },
  );

  app.register(async (raw: RoutesApp) => {
    raw.addContentTypeParser(TAR, (_request, _payload, done) => done(null, new Archive()));
    raw.setValidatorCompiler((part: Parameters<typeof validatorCompiler>[0]) => {
      const check = validatorCompiler(part);
      return (data: unknown) => (data instanceof Archive ? { value: data } : check(data));
    });
    createRoute(raw, ctx);
  });
}

function createRoute(app: RoutesApp, ctx: RouteContext): void {
  app.post(
    '/v1/templates',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'createTemplate',
        summary: 'Create a template from a checkpoint or from the archive of a root filesystem',
        description:
          'As JSON: a name for a checkpoint, which is kept for as long as the template exists. As ' +
          '`application/x-tar`, plain or compressed with gzip or zstd: the root filesystem, with `name` and `definition` ' +
          'in the query. It is booted once, its services are started, and a checkpoint is sealed while they run. That may ' +
          'take longer than this request; `GET /v1/templates/{name}` shows the progress.',
        tags: ['catalogue'],
        querystring: archiveQuery,
        body: createTemplateRequestSchema,
        response: {
          201: json('The template is ready.', templateViewSchema),
          ...errors(
            'not_found',
            'conflict',
            'expired',
            'capability_unsupported',
            'idempotency_mismatch',
            'quota_exceeded',
            'storage_full',
            'checkpoint_missing',
          ),
        },
      },
    },
    async (request, reply) => {
      const isArchive = (request.body as unknown) instanceof Archive;
      const template = isArchive
        ? await fromArchive(ctx, request, reply)
        : await fromCheckpoint(ctx, request);
      return reply.code(201).send(template);
    },
  );
}

type Created = FastifyRequest<{ Querystring: unknown; Body: unknown }>;

async function fromCheckpoint({ engine, replays }: RouteContext, request: Created): Promise<TemplateView> {
  if (Object.keys(request.query as ArchiveQuery).length > 0) {
    throw new TorporError(
      'invalid_request',
      'Query parameters are only for archives. A JSON body has all fields.',
    );
  }
  const wanted = request.body as z.infer<typeof createTemplateRequestSchema>;
  return request.deadline.run(() =>
    replays.once(request, '', async () => ({
      body: await engine.nameTemplate(request.identity.org, wanted),
    })),
  );
}

async function fromArchive(ctx: RouteContext, request: Created, reply: FastifyReply): Promise<TemplateView> {
  const { engine, replays, clock, settings } = ctx;
  const { name, runtime, definition = {} } = request.query as ArchiveQuery;
  if (name === undefined) throw new TorporError('invalid_request', 'An archive needs "name" in the query.');
  const { org } = request.identity;
  const upload = await receive(ctx, request, { name, runtime });
  // For the idempotency key: the same archive with the same definition is the same request.
  request.body = { name, runtime, definition, sha256: upload.sha256 };
  const deadline = new RequestDeadline(clock, settings.lifecycleMs, settings.graceMs);
  onResponseClosed(reply, () => deadline.end(new TorporError('timeout', 'The client disconnected.')));
  const archive = upload.path;
  let isUsed = false;
  const work = (signal: AbortSignal) => {
    isUsed = true;
    return replays
      .once(request, '', async () => ({
        body: await engine.prepareTemplate({ org, signal }, { name, runtime, archive, ...definition }),
      }))
      .finally(() => upload.remove());
  };
  try {
    return await deadline.run(work, async () => stillPreparing(name));
  } finally {
    deadline.release();
    // The client disconnected before the archive was used.
    if (!isUsed) await upload.remove();
  }
}

/** Refuses before the upload when possible. With an idempotency key the name may be taken by the first request. */
async function receive(
  { engine, uploads, clock, settings }: RouteContext,
  request: Created,
  wanted: { readonly name: string; readonly runtime: string | undefined },
) {
  const bytes = settings.maxTemplateBytes;
  const tooLarge = () =>
    new HttpRefusal(
      413,
      `The archive has more than ${bytes} bytes.`,
      'Leave out files that the sandboxes can download.',
    );
  if (Number(request.headers['content-length'] ?? 0) > bytes) throw tooLarge();
  if (idempotencyKeyOf(request) === undefined) {
    await request.deadline.run(() => engine.refuseTemplate(request.identity.org, wanted));
  }
  request.deadline.release();
  const source = withStallTimeout(request.raw, clock, settings.stallMs);
  return uploads.receive(source, { bytes, tooLarge }, request.deadline.signal);
}

function stillPreparing(name: string): TorporError {
  return new TorporError('timeout', `The template "${name}" is still being prepared.`, {
    hint: 'Wait until it is ready. GET /v1/templates/{name} shows the progress.',
  });
}
