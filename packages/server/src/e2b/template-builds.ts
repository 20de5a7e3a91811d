/** E2B's routes to build templates: create a build, upload its files, start it, ask for its status. */
import { BUILT_IN } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import type { LogLine } from '@torpor/template-builds';
import { z } from 'zod';
import type { RoutesApp } from '../http/routes-app.ts';
import { withStallTimeout } from '../http/stall-timeout.ts';
import type { RouteContext } from '../route-context.ts';
import { buildLimitFields, resourcesOf } from './build-limits.ts';
import { buildOrderOf, buildStartSchema } from './build-request.ts';
import { buildNamesOf } from './template-reference.ts';
import { UploadLinks, uploadQuerySchema } from './upload-links.ts';

const createSchema = z.object({
  name: z.string().max(300).nullish(),
  /** Earlier versions of the API have an alias instead of a name. */
  alias: z.string().max(300).nullish(),
  tags: z.array(z.string().max(100)).max(100).nullish(),
  ...buildLimitFields,
});

const buildParams = z.object({ id: z.string().min(1).max(200), build: z.string().min(1).max(100) });
const fileParams = z.object({ id: z.string().min(1).max(200), hash: z.string().regex(/^[0-9a-f]{64}$/) });

const LEVELS = z.enum(['debug', 'info', 'warn', 'error']);
/** E2B answers with at most this many lines. */
const MAX_LINES = 100;
const statusQuery = z.object({
  logsOffset: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(0).max(MAX_LINES).default(MAX_LINES),
  level: LEVELS.default('debug'),
});

export function e2bTemplateBuildRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { templateBuilds: builds, clock } = ctx;
  const links = new UploadLinks(ctx.uploadSecret);

  for (const path of ['/v3/templates', '/v2/templates']) {
    app.post(path, { schema: { hide: true, body: createSchema } }, async (request, reply) => {
      const { org } = request.identity;
      const { name, alias, tags, ...limits } = request.body;
      const wanted = buildNamesOf(name || alias || '', tags ?? [], org);
      if (BUILT_IN.includes(wanted.template))
        throw new TorporError('conflict', `The name "${wanted.template}" belongs to a built-in template.`, {
          hint: 'Choose another name.',
        });
      const { id } = await request.deadline.run(() =>
        builds.create(org, wanted.template, wanted.names, resourcesOf(limits)),
      );
      return reply.code(202).send({
        templateID: wanted.template,
        buildID: id,
        public: false,
        names: [`${org}/${wanted.template}`],
        aliases: [wanted.template],
        tags: wanted.tags,
      });
    });
  }

  app.get(
    '/templates/:id/files/:hash',
    { schema: { hide: true, params: fileParams } },
    async (request, reply) => {
      const { org } = request.identity;
      const { id, hash } = request.params;
      const present = await request.deadline.run(() => builds.files.has(org, hash));
      const expires = clock.now() + ctx.uploadLinkMs;
      const path = `/templates/${encodeURIComponent(id)}/files/${hash}?${links.query(org, hash, expires)}`;
      // The address by which the client has reached the server works for the upload too.
      // A proxy in front of the server may speak TLS for it.
      const isTls = request.protocol === 'https' || request.headers['x-forwarded-proto'] === 'https';
      const url = `${isTls ? 'https' : 'http'}://${request.host}${path}`;
      // A read-only key cannot upload.
      return reply.code(201).send(request.identity.readOnly ? { present } : { present, url });
    },
  );

  app.register(async (raw: RoutesApp) => {
    // The body is a stream, whatever type the client says it has.
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser('*', (_request, _payload, done) => done(null, null));
    raw.put(
      '/templates/:id/files/:hash',
      {
        config: { access: 'signed' },
        schema: { hide: true, params: fileParams, querystring: uploadQuerySchema },
      },
      async (request, reply) => {
        const { hash } = request.params;
        links.check(request.query, hash, clock.now());
        request.deadline.release();
        const source = withStallTimeout(request.raw, clock, ctx.settings.stallMs);
        await builds.files.receive(request.query.org, hash, source, request.deadline.signal);
        return reply.code(200).send();
      },
    );
  });

  app.post(
    '/v2/templates/:id/builds/:build',
    { schema: { hide: true, params: buildParams, body: buildStartSchema } },
    async (request, reply) => {
      const { org } = request.identity;
      const { id, build } = request.params;
      const order = buildOrderOf(request.body, org);
      await request.deadline.run(() => builds.begin(org, id, build, order));
      return reply.code(202).send();
    },
  );

  app.get(
    '/templates/:id/builds/:build/status',
    { schema: { hide: true, params: buildParams, querystring: statusQuery } },
    async (request) => {
      const { id: templateID, build: buildID } = request.params;
      const { logsOffset: offset, limit, level } = request.query;
      return request.deadline.run(async () => {
        // The status is read before the lines: a build writes its last line before it ends.
        const { status, reason, step } = await builds.get(request.identity.org, templateID, buildID);
        const lines = await builds.log(buildID, { offset, limit, level });
        const failure = { message: reason ?? '', ...(step === null ? {} : { step }), logEntries: [] };
        return {
          templateID,
          buildID,
          status,
          logs: [],
          logEntries: lines.map(entryOf),
          ...(status === 'error' ? { reason: failure } : {}),
        };
      });
    },
  );

  app.get(
    '/templates/:id/builds/:build/logs',
    {
      schema: {
        hide: true,
        params: buildParams,
        querystring: z.object({
          cursor: z.coerce.number().int().optional(),
          limit: z.coerce.number().int().min(0).max(MAX_LINES).default(MAX_LINES),
          direction: z.enum(['forward', 'backward']).default('forward'),
          level: LEVELS.default('debug'),
        }),
      },
    },
    async (request) => {
      const { id, build } = request.params;
      const { cursor, limit, direction, level } = request.query;
      return request.deadline.run(async () => {
        await builds.get(request.identity.org, id, build);
        const all = await builds.log(build, { offset: 0, limit: Number.MAX_SAFE_INTEGER, level });
        const ordered = direction === 'forward' ? all : all.toReversed();
        const from = ordered.filter(
          ({ at }) => cursor === undefined || (direction === 'forward' ? at >= cursor : at <= cursor),
        );
        return { logs: from.slice(0, limit).map(entryOf) };
      });
    },
  );
}

function entryOf({ at, level, step, text }: LogLine) {
  return { timestamp: new Date(at).toISOString(), level, step, message: text };
}
