/** E2B's routes to list, get, tag and publish templates. A version with a tag is a template of its own, `name:tag`. */
import { createHash } from 'node:crypto';
import { ENVD_VERSION } from '@torpor/envd';
import { type TemplateView, TorporError } from '@torpor/protocol';
import type { TemplateBuild } from '@torpor/template-builds';
import { z } from 'zod';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { notFound } from './failures.ts';
import { templateParams } from './route-params.ts';
import { limitsOf } from './sandbox-shapes.ts';
import { DEFAULT_TAG, parseTag, parseTemplateReference, splitTag, withTag } from './template-reference.ts';

const MAX_BUILDS = 100;
const tagsSchema = z.array(z.string().max(100)).min(1).max(100);

/** The versions of one template, the one without a tag first. */
interface Versions {
  readonly name: string;
  readonly all: readonly TemplateView[];
}

export function e2bTemplateRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine, templateBuilds: builds } = ctx;

  for (const path of ['/templates', '/v2/templates']) {
    app.get(path, { schema: { hide: true } }, async (request) => {
      const { org } = request.identity;
      return request.deadline.run(async () => {
        const [grouped, makers] = await Promise.all([versions(org), builds.makers(org)]);
        return grouped.map((template) => templateShape(template, makers));
      });
    });
  }

  app.get('/templates/aliases/:id', { schema: { hide: true, params: templateParams } }, async (request) => {
    const { name, all } = await request.deadline.run(() => find(request.identity.org, request.params.id));
    return { templateID: name, public: all.some(({ builtIn }) => builtIn) };
  });

  app.get('/templates/:id', { schema: { hide: true, params: templateParams } }, async (request) => {
    const { org } = request.identity;
    return request.deadline.run(async () => {
      const template = await find(org, request.params.id);
      const made = await builds.list(org, template.name, MAX_BUILDS);
      const shown = made.length > 0 ? made.map(builtShape) : template.all.map((one) => versionShape(one, []));
      return { ...templateShape(template, made), builds: shown };
    });
  });

  app.get('/templates/:id/tags', { schema: { hide: true, params: templateParams } }, async (request) => {
    const { org } = request.identity;
    return request.deadline.run(async () => {
      const { all } = await find(org, request.params.id);
      const makers = await builds.makers(org);
      return all.map((one) => {
        const { buildID, createdAt } = versionShape(one, makers);
        return { tag: splitTag(one.name).tag, buildID, createdAt };
      });
    });
  });

  app.post(
    '/templates/tags',
    { schema: { hide: true, body: z.object({ target: z.string().max(300), tags: tagsSchema }) } },
    async (request, reply) => {
      const { org } = request.identity;
      const tags = request.body.tags.map(parseTag);
      const target = templateNamed(request.body.target, org);
      const { name } = splitTag(target);
      const answer = await request.deadline.run(async () => {
        const tagged = await engine.copyTemplate(
          org,
          target,
          tags.map((tag) => withTag(name, tag)),
        );
        return versionShape(tagged, await builds.makers(org));
      });
      return reply.code(201).send({ buildID: answer.buildID, tags });
    },
  );

  app.delete(
    '/templates/tags',
    { schema: { hide: true, body: z.object({ name: z.string().max(300), tags: tagsSchema }) } },
    async (request, reply) => {
      const { org } = request.identity;
      const { name } = splitTag(templateNamed(request.body.name, org));
      const tags = request.body.tags.map(parseTag);
      await request.deadline.run(async () => {
        const { all } = await find(org, name);
        const missing = tags.find((tag) => !all.some((one) => one.name === withTag(name, tag)));
        if (missing !== undefined) throw notFound(`The tag "${missing}" of "${name}"`);
        if (tags.includes(DEFAULT_TAG))
          throw new TorporError('invalid_request', `The tag "${DEFAULT_TAG}" cannot be removed.`, {
            hint: 'Delete the template, or build it again.',
          });
        for (const tag of tags) await engine.deleteTemplate(org, withTag(name, tag));
      });
      return reply.code(204).send();
    },
  );

  for (const path of ['/templates/:id', '/v2/templates/:id']) {
    app.patch(
      path,
      { schema: { hide: true, params: templateParams, body: z.object({ public: z.boolean().nullish() }) } },
      async (request) => {
        const { org } = request.identity;
        const { name } = await request.deadline.run(() => find(org, request.params.id));
        if (request.body.public === true)
          throw new TorporError(
            'capability_unsupported',
            'Public templates: not supported. A template belongs to its organisation alone.',
            { hint: 'Build the template in the other organisation too.' },
          );
        return { names: [`${org}/${name}`] };
      },
    );
  }

  const versions = async (org: string): Promise<Versions[]> => {
    const [defaultRuntime] = engine.runtimes().filter((runtime) => runtime.default);
    // A built-in template exists once per runtime; only the one of the default runtime is listed.
    const shown = (await engine.templates(org)).filter(
      ({ builtIn, runtime }) => !builtIn || runtime === defaultRuntime?.name,
    );
    const groups = Map.groupBy(shown, (template) => splitTag(template.name).name);
    return [...groups].map(([name, all]) => ({ name, all: all.sort((a, b) => (a.name < b.name ? -1 : 1)) }));
  };

  /** A text with a tag finds the version with the tag alone. */
  const find = async (org: string, text: string): Promise<Versions> => {
    const full = templateNamed(text, org, await keptNames(text, org));
    const { name, tag } = splitTag(full);
    const found = (await versions(org)).find((one) => one.name === name);
    const all = (found?.all ?? []).filter((one) => tag === DEFAULT_TAG || one.name === full);
    if (all.length === 0) throw notFound(`The template "${text.slice(0, 100)}"`);
    return { name, all };
  };

  /** The templates of a snapshot that is named by its id. */
  const keptNames = async (text: string, org: string): Promise<readonly string[]> => {
    const named = parseTemplateReference(text, org);
    return named.is === 'checkpoint' ? ((await engine.keptCheckpoint(org, named.id))?.templates ?? []) : [];
  };
}

function templateNamed(text: string, org: string, kept: readonly string[] = []): string {
  const named = parseTemplateReference(text, org);
  const name = named.is === 'template' ? named.name : kept[0];
  if (name === undefined) throw notFound(`The template ${text.slice(0, 100)}`);
  return name;
}

const STATUS = { preparing: 'building', ready: 'ready', failed: 'error' } as const;

/** A template that no build of this API made gets an id from its checkpoint; E2B's clients require a UUID. */
function versionShape(template: TemplateView, makers: readonly TemplateBuild[]) {
  const { name, checkpointId, state, createdAt } = template;
  // Builds with equal steps have the same result: the one that gave the name is meant, or else the first one.
  const ofTemplate = makers.filter(
    (build) => build.checkpointId === checkpointId && build.template === splitTag(name).name,
  );
  const maker = ofTemplate.findLast(({ names }) => names.includes(name)) ?? ofTemplate[0];
  const at = new Date(createdAt).toISOString();
  return {
    buildID: maker?.id ?? uuidOf(checkpointId ?? name),
    status: STATUS[state],
    createdAt: at,
    updatedAt: at,
    finishedAt: at,
    ...limitsOf(template.resources),
    envdVersion: ENVD_VERSION,
  };
}

function builtShape({ id, status, resources, createdAt, updatedAt, finishedAt }: TemplateBuild) {
  return {
    buildID: id,
    status,
    createdAt: new Date(createdAt).toISOString(),
    updatedAt: new Date(updatedAt).toISOString(),
    ...(finishedAt === null ? {} : { finishedAt: new Date(finishedAt).toISOString() }),
    ...limitsOf(resources),
    envdVersion: ENVD_VERSION,
  };
}

function uuidOf(text: string): string {
  const hex = createHash('sha256').update(text).digest('hex');
  // Version 8 is for ids of one's own making.
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

function templateShape({ name, all }: Versions, makers: readonly TemplateBuild[]) {
  const [first] = all;
  if (first === undefined) throw notFound(`The template "${name}"`);
  const { buildID, status, createdAt, updatedAt } = versionShape(first, makers);
  return {
    templateID: name,
    buildID,
    buildStatus: status,
    ...limitsOf(first.resources),
    public: first.builtIn,
    aliases: [name],
    names: [name],
    createdAt,
    updatedAt,
    createdBy: null,
    lastSpawnedAt: null,
    spawnCount: 0,
    buildCount: Math.max(1, makers.filter(({ template }) => template === name).length),
    envdVersion: ENVD_VERSION,
  };
}
