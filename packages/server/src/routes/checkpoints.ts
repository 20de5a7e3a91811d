/** Checkpoints: list, get, name, verify, delete. Every route answers within its deadline, even when the store hangs. */
import {
  checkpointPageSchema,
  checkpointViewSchema,
  idSchema,
  nameCheckpointRequestSchema,
  nameSchema,
  pageSchema,
  verifiedCheckpointViewSchema,
} from '@torpor/protocol';
import { z } from 'zod';
import { actorIn } from '../http/caller.ts';
import { passOn } from '../http/pass-on.ts';
import { checkpointParams, errors, json, limitQuery, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

export function checkpointRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine, replays } = ctx;
  const tags = ['checkpoints'];

  app.get(
    '/v1/sandboxes/:id/checkpoints',
    {
      config: { deadline: 'checkpoint' },
      schema: {
        operationId: 'listCheckpoints',
        summary: 'The checkpoints of a sandbox, newest first',
        tags,
        params: sandboxParams,
        querystring: z.strictObject({ limit: limitQuery, cursor: idSchema('ckpt').optional() }),
        response: { 200: json('One page.', checkpointPageSchema), ...errors('not_found') },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { limit, cursor = null } = request.query;
      request.logFields.sandboxId = id;
      return request.deadline.run(() => engine.checkpoints(request.identity.org, id, limit, cursor));
    },
  );

  app.get(
    '/v1/checkpoints',
    {
      config: { deadline: 'checkpoint' },
      schema: {
        operationId: 'findCheckpoints',
        summary: 'The checkpoints with a name, of all sandboxes, newest first',
        tags,
        querystring: z.strictObject({ name: nameSchema, limit: limitQuery }),
        response: { 200: json('At most `limit` of them.', pageSchema(checkpointViewSchema)), ...errors() },
      },
    },
    async (request) => {
      const { name, limit } = request.query;
      const items = await request.deadline.run(() =>
        engine.namedCheckpoints(request.identity.org, name, limit),
      );
      return { items, nextCursor: null };
    },
  );

  app.get(
    '/v1/checkpoints/:id',
    {
      config: { deadline: 'checkpoint' },
      schema: {
        operationId: 'getCheckpoint',
        summary: 'One checkpoint, with the results of its last inspection and verification',
        tags,
        params: checkpointParams,
        response: { 200: json('The checkpoint.', checkpointViewSchema), ...errors('not_found') },
      },
    },
    async (request) => request.deadline.run(() => engine.checkpoint(request.identity.org, request.params.id)),
  );

  app.post(
    '/v1/checkpoints/:id/names',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'nameCheckpoint',
        summary: 'Give a checkpoint a name',
        description:
          'The name is unique among the checkpoints of its sandbox. A named checkpoint does not expire; it stays until it is ' +
          'deleted.',
        tags,
        params: checkpointParams,
        body: nameCheckpointRequestSchema,
        response: {
          200: json('The checkpoint with its names.', checkpointViewSchema),
          ...errors('not_found', 'conflict', 'expired', 'idempotency_mismatch'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { name } = request.body;
      return request.deadline.run(() =>
        replays.once(request, id, async () => ({
          body: await engine.nameCheckpoint(request.identity.org, id, name, actorIn(request)),
        })),
      );
    },
  );

  app.post(
    '/v1/checkpoints/:id/verify',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'verifyCheckpoint',
        summary: 'Read all contents of a checkpoint and record its health',
        description: 'A store that does not answer makes the health `unknown`, never `damaged`.',
        tags,
        params: checkpointParams,
        body: z.strictObject({}),
        response: {
          200: json('The checkpoint after the verification.', verifiedCheckpointViewSchema),
          ...errors('not_found', 'checkpoint_unreadable', 'capability_unsupported', 'idempotency_mismatch'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      // The node that has the bytes on its disk need not fetch them.
      if (await passOn(ctx, request, reply, (directory) => directory.locateCheckpoint(id))) return reply;
      return request.deadline.run(() =>
        replays.once(request, id, async () => ({ body: await engine.verify(request.identity.org, id) })),
      );
    },
  );

  app.delete(
    '/v1/checkpoints/:id',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'deleteCheckpoint',
        summary: 'Delete a checkpoint that nothing needs',
        tags,
        params: checkpointParams,
        response: {
          204: z.null().meta({ description: 'The checkpoint is deleted.' }),
          ...errors('not_found', 'conflict', 'forbidden', 'idempotency_mismatch'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      await request.deadline.run(() =>
        replays.once(request, id, async () => {
          await engine.deleteCheckpoint(request.identity.org, id, actorIn(request));
          return { body: null };
        }),
      );
      return reply.code(204).send(null);
    },
  );
}
