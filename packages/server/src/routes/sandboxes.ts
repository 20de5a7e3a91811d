/** Sandboxes: create, list, get, kill, and set timeout, retention and network. */
import {
  createRequestSchema,
  networkSchema,
  pageSchema,
  retentionRequestSchema,
  SANDBOX_STATES,
  type SandboxId,
  type SandboxState,
  type SandboxView,
  sandboxStateSchema,
  sandboxViewSchema,
  timeoutRequestSchema,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { actorIn } from '../http/caller.ts';
import { passOnCreate } from '../http/pass-on.ts';
import { errors, json, pageQuery, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { runVerb } from '../http/run-verb.ts';
import type { RouteContext } from '../route-context.ts';
import { withUrls } from './sandbox-urls.ts';

const oneState = SANDBOX_STATES.join('|');
const METADATA = 'metadata.';
/** Each filter is a separate index lookup. */
const MAX_FILTERS = 16;

const statesSchema = z.union([
  z
    .string()
    .regex(new RegExp(`^(?:${oneState})(?:,(?:${oneState}))*$`))
    .transform((text) => text.split(',') as SandboxState[]),
  z.array(sandboxStateSchema).max(SANDBOX_STATES.length),
]);

const KNOWN: ReadonlySet<string> = new Set(['limit', 'cursor', 'orgId', 'state', 'name']);

const listQuery = z
  .object({ ...pageQuery('sbx'), state: statesSchema.optional(), name: z.string().max(255).optional() })
  .catchall(z.string().max(1_024))
  .superRefine((query, context) => {
    const filters = Object.keys(query).filter((name) => !KNOWN.has(name));
    for (const name of filters) {
      if (name.startsWith(METADATA) && name.length > METADATA.length) continue;
      context.addIssue({ code: 'custom', message: 'is not a known parameter', path: [name] });
    }
    if (filters.length > MAX_FILTERS) context.addIssue({ code: 'custom', message: 'has too many filters' });
  });

function metadataOf(query: Readonly<Record<string, unknown>>): Record<string, string> {
  const wanted = Object.entries(query).filter(([name]) => name.startsWith(METADATA));
  return Object.fromEntries(wanted.map(([name, value]) => [name.slice(METADATA.length), String(value)]));
}

export function sandboxRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine, replays } = ctx;
  /** Runs one write to a sandbox once per idempotency key. */
  const once = (request: FastifyRequest, id: SandboxId, write: (org: string) => Promise<SandboxView>) => {
    request.logFields.sandboxId = id;
    return request.deadline.run(() =>
      replays.once(request, id, async () => ({ body: withUrls(ctx, await write(request.identity.org)) })),
    );
  };

  app.post(
    '/v1/sandboxes',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'createSandbox',
        summary: 'Create a sandbox from a template or a checkpoint',
        tags: ['sandboxes'],
        body: createRequestSchema,
        response: {
          201: json('The sandbox runs.', sandboxViewSchema),
          ...errors(
            'not_found',
            'conflict',
            'expired',
            'capability_unsupported',
            'idempotency_mismatch',
            'quota_exceeded',
            'capacity',
            'storage_full',
            'checkpoint_missing',
          ),
        },
      },
    },
    async (request, reply) => {
      if (await passOnCreate(ctx, request, reply, request.body)) return reply;
      const { sandbox } = await runVerb(ctx, request, undefined, (caller) =>
        engine.create(caller, request.body),
      );
      request.logFields.sandboxId = sandbox.id;
      return reply.code(201).send(withUrls(ctx, sandbox));
    },
  );

  app.get(
    '/v1/sandboxes',
    {
      schema: {
        operationId: 'listSandboxes',
        summary: 'List sandboxes',
        description:
          'In the order of their ids. `state` accepts several states, separated by commas. `metadata.<key>=<value>` ' +
          'selects sandboxes with this metadata, `name` those with this name, including ended ones.',
        tags: ['sandboxes'],
        querystring: listQuery,
        response: { 200: json('One page.', pageSchema(sandboxViewSchema)), ...errors() },
      },
    },
    async (request) => {
      const { limit, cursor = '', state, name } = request.query;
      const filter = {
        org: request.identity.org,
        metadata: metadataOf(request.query),
        name,
        ...(state === undefined ? {} : { states: state }),
      };
      return request.deadline.run(() => engine.list(filter, cursor, limit));
    },
  );

  app.get(
    '/v1/sandboxes/:id',
    {
      schema: {
        operationId: 'getSandbox',
        summary: 'One sandbox, with the evidence for its state',
        tags: ['sandboxes'],
        params: sandboxParams,
        response: { 200: json('The sandbox.', sandboxViewSchema), ...errors('not_found') },
      },
    },
    async (request) => {
      const { id } = request.params;
      request.logFields.sandboxId = id;
      const { org } = request.identity;
      return request.deadline.run(async () => withUrls(ctx, await engine.get(org, id)));
    },
  );

  app.delete(
    '/v1/sandboxes/:id',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'killSandbox',
        summary: 'Kill a sandbox, also during an operation',
        tags: ['sandboxes'],
        params: sandboxParams,
        response: {
          200: json('The sandbox is killed.', sandboxViewSchema),
          ...errors('not_found', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { sandbox } = await runVerb(ctx, request, id, (caller) => engine.kill(caller, id));
      return sandbox;
    },
  );

  app.post(
    '/v1/sandboxes/:id/timeout',
    {
      schema: {
        operationId: 'setTimeout',
        summary: 'Set how long a sandbox may run, from now and from each resume',
        description: 'Null: no timeout. Only this call can set an earlier end.',
        tags: ['sandboxes'],
        params: sandboxParams,
        body: timeoutRequestSchema,
        response: {
          200: json('It is set.', sandboxViewSchema),
          ...errors('not_found', 'transitioning', 'killed', 'lost', 'conflict', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      return once(request, id, (org) =>
        engine.setLifetime(org, id, request.body.timeoutSeconds, actorIn(request)),
      );
    },
  );

  app.post(
    '/v1/sandboxes/:id/retention',
    {
      schema: {
        operationId: 'setRetention',
        summary: 'Set how long a paused, unused sandbox is kept',
        description:
          'Null: forever. "default": as configured for its organisation. An announced deletion is withdrawn, and ' +
          'announced again when the new retention requires it.',
        tags: ['sandboxes'],
        params: sandboxParams,
        body: retentionRequestSchema,
        response: {
          200: json('It is set.', sandboxViewSchema),
          ...errors('not_found', 'transitioning', 'killed', 'lost', 'conflict', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      return once(request, id, (org) =>
        engine.setRetention(org, id, request.body.deletePausedAfterSeconds, actorIn(request)),
      );
    },
  );

  app.post(
    '/v1/sandboxes/:id/network',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'setNetwork',
        summary: 'Set what a sandbox may reach',
        description:
          'Replaces the previous rules. Connections that the new rules forbid are ended. For a paused sandbox the rules ' +
          'apply from its next start. Refused connections appear as `network.refused` events.',
        tags: ['sandboxes'],
        params: sandboxParams,
        body: networkSchema,
        response: {
          200: json('It is set.', sandboxViewSchema),
          ...errors(
            'not_found',
            'transitioning',
            'killed',
            'lost',
            'conflict',
            'capability_unsupported',
            'idempotency_mismatch',
          ),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { org } = request.identity;
      request.logFields.sandboxId = id;
      return request.deadline.run(() =>
        replays.once(request, id, async () => {
          const sandbox = await engine.setNetwork(org, id, request.body, actorIn(request));
          return { body: withUrls(ctx, sandbox) };
        }),
      );
    },
  );
}
