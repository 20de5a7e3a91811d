/** E2B's routes to list and get templates. */
import { ENVD_VERSION } from '@torpor/envd';
import type { TemplateView } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { notFound } from './failures.ts';
import { templateParams } from './route-params.ts';
import { limitsOf } from './sandbox-shapes.ts';
import { parseTemplateReference } from './template-reference.ts';

export function e2bTemplateRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;

  for (const path of ['/templates', '/v2/templates']) {
    app.get(path, { schema: { hide: true } }, async (request) => {
      const all = await request.deadline.run(() => engine.templates(request.identity.org));
      const [defaultRuntime] = engine.runtimes().filter((runtime) => runtime.default);
      // A built-in template exists once per runtime; only the one of the default runtime is listed.
      const shown = all.filter(({ builtIn, runtime }) => !builtIn || runtime === defaultRuntime?.name);
      return shown.map((template) => templateShape(template));
    });
  }

  app.get('/templates/aliases/:id', { schema: { hide: true, params: templateParams } }, async (request) => {
    const template = await find(request);
    return { templateID: template.name, public: template.builtIn };
  });

  app.get('/templates/:id', { schema: { hide: true, params: templateParams } }, async (request) => {
    const template = await find(request);
    return { ...templateShape(template), builds: [buildShape(template)] };
  });

  app.get('/templates/:id/tags', { schema: { hide: true, params: templateParams } }, async (request) => {
    const template = await find(request);
    return [{ tag: 'default', ...buildShape(template) }];
  });

  const find = (request: FastifyRequest<{ Params: { id: string } }>): Promise<TemplateView> =>
    request.deadline.run(async () => {
      const { org } = request.identity;
      const named = parseTemplateReference(request.params.id, org);
      if (named.is === 'template') return engine.template(org, named.name);
      const kept = await engine.keptCheckpoint(org, named.id);
      const [name] = kept?.templates ?? [];
      if (name === undefined) throw notFound(`The template ${named.id}`);
      return engine.template(org, name);
    });
}

const STATUS = { preparing: 'building', ready: 'ready', failed: 'error' } as const;

/** The id of a build is the id of the checkpoint that it made. */
function buildShape({ name, checkpointId, state, createdAt }: TemplateView) {
  const at = new Date(createdAt).toISOString();
  return {
    buildID: checkpointId ?? name,
    status: STATUS[state],
    createdAt: at,
    updatedAt: at,
    finishedAt: at,
    ...limitsOf({}),
    envdVersion: ENVD_VERSION,
  };
}

function templateShape(template: TemplateView) {
  const { name, builtIn } = template;
  const { buildID, status, createdAt, updatedAt } = buildShape(template);
  return {
    templateID: name,
    buildID,
    buildStatus: status,
    ...limitsOf({}),
    public: builtIn,
    aliases: [name],
    names: [name],
    createdAt,
    updatedAt,
    createdBy: null,
    lastSpawnedAt: null,
    spawnCount: 0,
    buildCount: 1,
    envdVersion: ENVD_VERSION,
  };
}
