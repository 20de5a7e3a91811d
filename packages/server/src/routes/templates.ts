/** Templates: a name for a checkpoint, or made from the archive of a root filesystem or from a container image. */
import {
  type CreateTemplateRequest,
  createTemplateRequestSchema,
  DEFAULT_ORG,
  type ImageTemplateRequest,
  nameSchema,
  pageSchema,
  type TemplateDefinition,
  type TemplateView,
  TorporError,
  templateChangeSchema,
  templateDefinitionSchema,
  templateLogLineSchema,
  templateNameSchema,
  templateViewSchema,
} from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { idempotencyKeyOf } from '../http/caller.ts';
import { HttpRefusal } from '../http/error-answer.ts';
import { parseJson } from '../http/json-body.ts';
import { onResponseClosed } from '../http/on-response-closed.ts';
import { requireOperator } from '../http/org-id.ts';
import { RequestDeadline } from '../http/request-deadline.ts';
import { errors, json, unpagedQuery } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { withStallTimeout } from '../http/stall-timeout.ts';
import type { RouteContext } from '../route-context.ts';

/** Also compressed with gzip or zstd; the first bytes tell. */
export const TAR = 'application/x-tar';

/** Placeholder for a body that has not been read yet. */
class Archive {}

const templateParams = z.object({ name: templateNameSchema });

const archiveQuery = z.strictObject({
  name: templateNameSchema.optional(),
  format: z.enum(['root', 'oci', 'docker']).optional().meta({
    description:
      'What an archive holds: a root filesystem (the default), an image as an OCI layout, or an image of `docker save`.',
  }),
  entrypoint: z
    .enum(['true', 'false'])
    .optional()
    .meta({ description: 'With an archive of an image: as in `CreateTemplate`.' }),
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

  app.get(
    '/v1/templates/:name/log',
    {
      schema: {
        operationId: 'getTemplateLog',
        summary: 'What happened while a template was prepared, oldest first',
        description: 'Since the server started, at most 500 lines.',
        tags,
        params: templateParams,
        querystring: z.strictObject(unpagedQuery),
        response: { 200: json('The lines.', pageSchema(templateLogLineSchema)), ...errors('not_found') },
      },
    },
    async (request) => {
      const { name } = request.params;
      const items = await request.deadline.run(() => engine.templateLog(request.identity.org, name));
      return { items: [...items], nextCursor: null };
    },
  );

  app.patch(
    '/v1/templates/:name',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'changeTemplate',
        summary: 'Publish a template for the other organisations of the server, or end that',
        description:
          'Sandboxes that exist do not change. A new version of a published template is published too.',
        tags,
        params: templateParams,
        body: templateChangeSchema,
        response: {
          200: json('The template.', templateViewSchema),
          ...errors('not_found', 'forbidden', 'conflict', 'transitioning', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const { name } = request.params;
      const { public: isPublic } = request.body;
      return request.deadline.run(() =>
        replays.once(request, name, async () => ({
          body: await engine.publishTemplate(request.identity.org, name, isPublic),
        })),
      );
    },
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

  app.post(
    '/v1/admin/templates/:name/rebuild',
    {
      schema: {
        operationId: 'rebuildTemplate',
        summary: 'Make the root of a built-in template again, with the updates of its packages',
        description:
          'For operator keys. Answers at once: `GET /v1/templates/{name}` shows the progress in `phase`. New sandboxes use ' +
          'the new version when it is ready; existing ones keep theirs.',
        tags,
        params: templateParams,
        body: z.strictObject({}),
        response: {
          202: json('The template as it is now.', templateViewSchema),
          ...errors('not_found', 'forbidden', 'capability_unsupported'),
        },
      },
    },
    async (request, reply) => {
      requireOperator(request.identity);
      const template = await request.deadline.run(() => engine.builtInTemplate(request.params.name));
      if (ctx.rebuildBase === undefined) throw cannotRebuild(template);
      ctx.rebuildBase();
      return reply.code(202).send(template);
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
        summary: 'Create a template from a checkpoint, an image, or the archive of a root filesystem',
        description:
          'As JSON with `from`: a name for a checkpoint, which is kept for as long as the template exists. As JSON with ' +
          '`image`: an image that the server fetches from a registry. As `application/x-tar`: a root filesystem, plain or ' +
          'compressed with gzip or zstd, or an image (`format`), with `name` and `definition` in the query. It is booted once, its services are started, and a checkpoint is sealed while they run. That may ' +
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
            'forbidden',
            'unreachable',
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
      const body: unknown = request.body;
      if (body instanceof Archive) return reply.code(201).send(await fromArchive(ctx, request, reply));
      refuseQuery(request);
      // The schema lets exactly one of the two forms through.
      const wanted = body as CreateTemplateRequest | ImageTemplateRequest;
      const template =
        'image' in wanted
          ? await fromImage(ctx, request, reply, wanted)
          : await fromCheckpoint(ctx, request, wanted);
      return reply.code(201).send(template);
    },
  );
}

type Created = FastifyRequest<{ Querystring: unknown; Body: unknown }>;

function refuseQuery(request: Created): void {
  if (Object.keys(request.query as ArchiveQuery).length === 0) return;
  throw new TorporError(
    'invalid_request',
    'Query parameters are only for archives. A JSON body has all fields.',
  );
}

async function fromCheckpoint(
  { engine, replays }: RouteContext,
  request: Created,
  wanted: CreateTemplateRequest,
): Promise<TemplateView> {
  return request.deadline.run(() =>
    replays.once(request, '', async () => ({
      body: await engine.nameTemplate(
        request.identity.org,
        wanted,
        wanted.replace === true ? 'replace' : 'refuse',
      ),
    })),
  );
}

/** The credentials are in memory only, until the image is fetched. */
async function fromImage(
  ctx: RouteContext,
  request: Created,
  reply: FastifyReply,
  { image, registryCredentials: credentials, ...wanted }: ImageTemplateRequest,
): Promise<TemplateView> {
  const { org } = request.identity;
  // The credentials of the machine are its operator's, and so is the default organisation.
  const source = ctx.images.inRegistry(image, { credentials, mayUseServerCredentials: org === DEFAULT_ORG });
  // For the idempotency key, without the credentials: not even a digest of them is stored.
  request.body = { image, ...wanted };
  request.deadline.release();
  return prepare(ctx, request, reply, { ...wanted, image: source });
}

async function fromArchive(ctx: RouteContext, request: Created, reply: FastifyReply): Promise<TemplateView> {
  const { name, runtime, definition = {}, format = 'root', entrypoint } = request.query as ArchiveQuery;
  if (name === undefined) throw new TorporError('invalid_request', 'An archive needs "name" in the query.');
  if (entrypoint !== undefined && format === 'root')
    throw new TorporError('invalid_request', 'Only an image has an entrypoint: set "format" too.');
  const upload = await receive(ctx, request, { name, runtime });
  // For the idempotency key: the same archive with the same definition is the same request.
  request.body = { name, runtime, definition, format, entrypoint, sha256: upload.sha256 };
  const common = { name, runtime, ...definition };
  const template =
    format === 'root'
      ? { ...common, archive: upload.path }
      : { ...common, image: ctx.images.inArchive(upload.path, format), entrypoint: entrypoint === 'true' };
  return prepare(ctx, request, reply, template, () => upload.remove());
}

/** `release` is called once: when the template is made or has failed, or when the client disconnected before that began. */
async function prepare(
  { engine, replays, clock, settings }: RouteContext,
  request: Created,
  reply: FastifyReply,
  template: Parameters<RouteContext['engine']['prepareTemplate']>[1],
  release: () => Promise<void> = async () => {},
): Promise<TemplateView> {
  const { org } = request.identity;
  const deadline = new RequestDeadline(clock, settings.lifecycleMs, settings.graceMs);
  onResponseClosed(reply, () => deadline.end(new TorporError('timeout', 'The client disconnected.')));
  let isBegun = false;
  const work = (signal: AbortSignal) => {
    isBegun = true;
    return replays
      .once(request, '', async () => ({ body: await engine.prepareTemplate({ org, signal }, template) }))
      .finally(release);
  };
  try {
    return await deadline.run(work, async () => stillPreparing(template.name));
  } finally {
    deadline.release();
    if (!isBegun) await release();
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

function cannotRebuild({ name, runtime }: TemplateView): TorporError {
  return new TorporError(
    'capability_unsupported',
    `The template "${name}" of the runtime "${runtime}" has no root of its own.`,
  );
}

function stillPreparing(name: string): TorporError {
  return new TorporError('timeout', `The template "${name}" is still being prepared.`, {
    hint: 'Wait until it is ready. GET /v1/templates/{name} shows the progress.',
  });
}
