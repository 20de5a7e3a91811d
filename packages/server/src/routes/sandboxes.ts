/** Sandboxes: making, finding and ending them, and how long they live. */
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
import { lifecycle } from '../http/lifecycle.ts';
import { errors, json, pageQuery, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteParts } from '../parts.ts';
import { withUrls } from './sandbox-urls.ts';

const oneState = SANDBOX_STATES.join('|');
const METADATA = 'metadata.';
/** Each filter is a look into an index of its own. */
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
      context.addIssue({ code: 'custom', message: 'is not known', path: [name] });
    }
    if (filters.length > MAX_FILTERS) context.addIssue({ code: 'custom', message: 'has too many filters' });
  });

function metadataOf(query: Readonly<Record<string, unknown>>): Record<string, string> {
  const wanted = Object.entries(query).filter(([name]) => name.startsWith(METADATA));
  return Object.fromEntries(wanted.map(([name, value]) => [name.slice(METADATA.length), String(value)]));
}

export function sandboxRoutes(app: RoutesApp, parts: RouteParts): void {
  const { engine, replays } = parts;
  /** One write to a sandbox, repeated under its idempotency key. */
  const once = (request: FastifyRequest, id: SandboxId, write: (org: string) => Promise<SandboxView>) => {
    request.facts.sandboxId = id;
    return request.bound.run(() =>
      replays.once(request, id, async () => ({ body: withUrls(parts, await write(request.identity.org)) })),
    );
  };

  app.post(
    '/v1/sandboxes',
    {
      config: { bound: 'lifecycle' },
      schema: {
        operationId: 'createSandbox',
        summary: 'Create a sandbox from a template or a checkpoint',
        tags: ['sandboxes'],
        body: createRequestSchema,
        response: {
          201: json('It runs.', sandboxViewSchema),
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
      const { sandbox } = await lifecycle(parts, request, undefined, (caller) =>
        engine.create(caller, request.body),
      );
      request.facts.sandboxId = sandbox.id;
      return reply.code(201).send(withUrls(parts, sandbox));
    },
  );

  app.get(
    '/v1/sandboxes',
    {
      schema: {
        operationId: 'listSandboxes',
        summary: 'List sandboxes',
        description:
          'In the order of their ids. `state` takes several, separated by commas. `metadata.<key>=<value>` ' +
          'leaves only those with this metadata, `name` only those of this name, also those that have ended.',
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
      return request.bound.run(() => engine.list(filter, cursor, limit));
    },
  );

  app.get(
    '/v1/sandboxes/:id',
    {
      schema: {
        operationId: 'getSandbox',
        summary: 'One sandbox, and how its state is known',
        tags: ['sandboxes'],
        params: sandboxParams,
        response: { 200: json('As it is.', sandboxViewSchema), ...errors('not_found') },
      },
    },
    async (request) => {
      const { id } = request.params;
      request.facts.sandboxId = id;
      const { org } = request.identity;
      return request.bound.run(async () => withUrls(parts, await engine.get(org, id)));
    },
  );

  app.delete(
    '/v1/sandboxes/:id',
    {
      config: { bound: 'lifecycle' },
      schema: {
        operationId: 'killSandbox',
        summary: 'End a sandbox, whatever is under way',
        tags: ['sandboxes'],
        params: sandboxParams,
        response: {
          200: json('It is killed.', sandboxViewSchema),
          ...errors('not_found', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { sandbox } = await lifecycle(parts, request, id, (caller) => engine.kill(caller, id));
      return sandbox;
    },
  );

  app.post(
    '/v1/sandboxes/:id/timeout',
    {
      schema: {
        operationId: 'setTimeout',
        summary: 'Set how long a sandbox may run, from now and from each resume on',
        description: 'Null: without an end. Only this call may shorten a life.',
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
      return once(request, id, (org) => engine.setLifetime(org, id, request.body.timeoutSeconds));
    },
  );

  app.post(
    '/v1/sandboxes/:id/retention',
    {
      schema: {
        operationId: 'setRetention',
        summary: 'Set how long a sandbox is kept while it is paused and nobody uses it',
        description:
          'Null: for good. "default": as its organisation says. A deletion that was announced is withdrawn, and ' +
          'announced again when the new policy calls for it.',
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
      return once(request, id, (org) => engine.setRetention(org, id, request.body.deletePausedAfterSeconds));
    },
  );

  app.post(
    '/v1/sandboxes/:id/network',
    {
      config: { bound: 'lifecycle' },
      schema: {
        operationId: 'setNetwork',
        summary: 'Set what a sandbox may reach, from now on',
        description:
          'In place of what was set before. Connections that it no longer allows are ended; a sandbox that sleeps ' +
          'has it from its next start on. What is refused shows as `network.refused` events.',
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
      request.facts.sandboxId = id;
      return request.bound.run(() =>
        replays.once(request, id, async () => {
          const sandbox = await engine.setNetwork(org, id, request.body);
          return { body: withUrls(parts, sandbox) };
        }),
      );
    },
  );
}
