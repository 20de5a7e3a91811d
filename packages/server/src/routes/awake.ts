/** For operators who take a server down: the sandboxes of all organisations that are awake, and putting one to sleep. */
import { awakeSandboxSchema, putToSleepReplySchema, type SandboxId, TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { requireOperator } from '../http/org-id.ts';
import { errors, json, pageQuery, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

const AWAKE = ['creating', 'running', 'pausing', 'resuming'] as const;

export function awakeRoutes(app: RoutesApp, { engine }: RouteContext): void {
  const orgOf = async (id: SandboxId) => {
    const found = await engine.find(id);
    if (found !== undefined) return found.org;
    throw new TorporError('not_found', `There is no sandbox ${id}.`, { sandboxId: id });
  };

  app.get(
    '/v1/admin/awake',
    {
      schema: {
        operationId: 'listAwakeSandboxes',
        summary: 'Sandboxes of all organisations that run or are about to',
        description: 'For operator keys: ids and organisations, and nothing else of them.',
        tags: ['server'],
        querystring: z.strictObject(pageQuery('sbx')),
        response: {
          200: json(
            'A page of them.',
            z.object({ items: z.array(awakeSandboxSchema), nextCursor: z.string().nullable() }),
          ),
          ...errors('forbidden'),
        },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      const { limit, cursor = '' } = request.query;
      return request.deadline.run(async () => {
        const { items, nextCursor } = await engine.list({ states: AWAKE }, cursor, limit);
        return {
          items: await Promise.all(items.map(async ({ id }) => ({ id, org: await orgOf(id) }))),
          nextCursor,
        };
      });
    },
  );

  app.post(
    '/v1/admin/sandboxes/:id/pause',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'putSandboxToSleep',
        summary: 'Pause a sandbox of any organisation',
        description:
          'For operator keys, before a server is taken down. The answer names the checkpoint alone.',
        tags: ['server'],
        params: sandboxParams,
        body: z.strictObject({}),
        response: {
          200: json('It sleeps.', putToSleepReplySchema),
          ...errors('forbidden', 'not_found', 'conflict', 'capability_unsupported'),
        },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      const { id } = request.params;
      return request.deadline.run(async (signal) => {
        const { checkpoint } = await engine.pause({ org: await orgOf(id), signal }, id);
        return { checkpointId: checkpoint.id };
      });
    },
  );
}
