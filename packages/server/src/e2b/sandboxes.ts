/** E2B's routes to create, list, get and kill sandboxes. */
import { pageOf, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { z } from 'zod';
import { passOnCreate } from '../http/pass-on.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { runVerb } from '../http/run-verb.ts';
import type { RouteContext } from '../route-context.ts';
import { type ApiVersion, createRequestOf, createSchema, type E2bCreate } from './create-request.ts';
import { formatToken, parseMetadataFilter, parseToken, sandboxesQuery } from './list-query.ts';
import { ruleSecretsOf, withRules } from './network-rules.ts';
import { idParams } from './route-params.ts';
import { detailShape, listedShape, SHOWN_STATES, sandboxShape, shownState } from './sandbox-shapes.ts';
import { createSource } from './template-reference.ts';

export function e2bSandboxRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;
  const config = { deadline: 'lifecycle' } as const;

  const create = async (request: FastifyRequest, body: E2bCreate, version: ApiVersion) => {
    const wanted = createRequestOf(body, version);
    const { org } = request.identity;
    const rules = ruleSecretsOf(body.network ?? {});
    const { sandbox } = await runVerb(ctx, request, undefined, async (caller) => {
      const source = await createSource(engine, org, body.templateID);
      if ('template' in source) await requireProgramOfE2b(ctx, org, source.template, body.mcp);
      const network = await withRules(ctx.secrets, org, wanted.network ?? {}, rules);
      return engine.create({ ...caller, dialect: 'e2b' }, { ...wanted, network, ...source });
    });
    request.logFields.sandboxId = sandbox.id;
    return sandboxShape(ctx, sandbox);
  };
  for (const [path, version] of [
    ['/sandboxes', 'v1'],
    ['/v2/sandboxes', 'v2'],
  ] as const) {
    app.post(path, { config, schema: { hide: true, body: createSchema } }, async (request, reply) => {
      const source = await createSource(engine, request.identity.org, request.body.templateID);
      const wanted = { ...createRequestOf(request.body, version), ...source };
      if (await passOnCreate(ctx, request, reply, wanted)) return reply;
      return reply.code(201).send(await create(request, request.body, version));
    });
  }

  const list = async (request: FastifyRequest, query: z.infer<typeof sandboxesQuery>) => {
    const { metadata, state = ['running', 'paused'], order, startedAfter, template, limit } = query;
    const { org } = request.identity;
    const last = parseToken(query.nextToken);
    const found = await request.deadline.run(() =>
      engine.listByStart(
        {
          org,
          states: SHOWN_STATES,
          awake: new Set(state).size === 1 ? state[0] === 'running' : undefined,
          metadata: parseMetadataFilter(metadata),
        },
        {
          order: order === 'asc' ? 'oldest first' : 'newest first',
          after: last === undefined ? undefined : { startedAt: last.at, id: last.id },
          since: startedAfter?.getTime(),
          template: template || undefined,
          limit: limit + 1,
        },
      ),
    );
    const { items, nextCursor } = pageOf(found, limit, ({ startedAt, id }) =>
      formatToken({ at: startedAt ?? 0, id }),
    );
    return { items: items.map(listedShape), next: nextCursor ?? undefined };
  };
  app.get(
    '/v2/sandboxes',
    { schema: { hide: true, querystring: sandboxesQuery } },
    async (request, reply) => {
      const { items, next } = await list(request, request.query);
      if (next !== undefined) reply.header('x-next-token', next);
      return reply.send(items);
    },
  );
  // The list of the first API version has no pages and shows only running sandboxes.
  app.get('/sandboxes', { schema: { hide: true, querystring: sandboxesQuery } }, async (request, reply) => {
    const all = [];
    for (let nextToken: string | undefined; ; ) {
      const query = { ...request.query, limit: 100, state: ['running' as const], nextToken };
      const { items, next } = await list(request, query);
      all.push(...items);
      if (next === undefined) return reply.send(all);
      nextToken = next;
    }
  });

  app.get('/sandboxes/:id', { schema: { hide: true, params: idParams } }, async (request) => {
    const { id } = request.params;
    request.logFields.sandboxId = id;
    const { org, readOnly } = request.identity;
    // The access token in the answer would let a read-only key change the sandbox.
    const shown = readOnly ? {} : ctx;
    return request.deadline.run(async () => detailShape(shown, await engine.get(org, id)));
  });

  app.delete(
    '/sandboxes/:id',
    { config, schema: { hide: true, params: idParams } },
    async (request, reply) => {
      const { id } = request.params;
      // A second kill is 404, as with E2B.
      shownState(await request.deadline.run(() => engine.get(request.identity.org, id)));
      await runVerb(ctx, request, id, (caller) => engine.kill(caller, id));
      return reply.code(204).send();
    },
  );
}

/** Templates that E2B has for everyone, with the programs in them. They are not a part of Torpor. */
const PROGRAMS_OF_E2B: ReadonlyMap<string, string> = new Map([
  ['code-interpreter-v1', "the server of E2B's code interpreter on port 49999"],
  ['mcp-gateway', 'the program mcp-gateway'],
]);

/** A template of the caller with the same name takes the place of E2B's. */
async function requireProgramOfE2b(
  { engine }: RouteContext,
  org: string,
  name: string,
  mcp: E2bCreate['mcp'],
): Promise<void> {
  const program = PROGRAMS_OF_E2B.get(mcp ? 'mcp-gateway' : name);
  if (program === undefined || (await engine.templates(org)).some((template) => template.name === name))
    return;
  throw new TorporError(
    'capability_unsupported',
    `This is not supported yet without a template "${name}" of yours, with ${program} in it.`,
    { hint: 'docs/coming-from-e2b.md lists what is supported.' },
  );
}
