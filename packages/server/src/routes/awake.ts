/** For operators who stop a server: list the awake sandboxes of all organisations, and pause one. */
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
        summary: 'Awake sandboxes of all organisations',
        description: 'For operator keys. The list has only ids and organisations.',
        tags: ['server'],
        querystring: z.strictObject(pageQuery('sbx')),
        response: {
          200: json(
            'One page.',
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
          'For operator keys, before a server is stopped. The answer has only the id of the checkpoint.',
        tags: ['server'],
        params: sandboxParams,
        body: z.strictObject({}),
        response: {
          200: json('The sandbox is paused.', putToSleepReplySchema),
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
