/** The lifecycle of a sandbox: pause, resume, fork, snapshot, rollback. */
import {
  checkpointViewSchema,
  forkReplySchema,
  forkRequestSchema,
  pauseReplySchema,
  pauseRequestSchema,
  resumeReplySchema,
  resumeRequestSchema,
  rollbackRequestSchema,
  snapshotRequestSchema,
} from '@torpor/protocol';
import { errors, json, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { runVerb } from '../http/run-verb.ts';
import type { RouteContext } from '../route-context.ts';
import { withUrls } from './sandbox-urls.ts';

const common = ['not_found', 'transitioning', 'conflict', 'killed', 'lost', 'idempotency_mismatch'] as const;
const sealing = [...common, 'capability_unsupported', 'storage_full', 'checkpoint_unreadable'] as const;
const starting = [
  ...common,
  'checkpoint_missing',
  'checkpoint_corrupt',
  'checkpoint_unreadable',
  'checkpoint_incompatible',
  'expired',
  'quota_exceeded',
  'capacity',
] as const;

export function lifecycleRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;
  const config = { deadline: 'lifecycle' } as const;
  const tags = ['lifecycle'];

  app.post(
    '/v1/sandboxes/:id/pause',
    {
      config,
      schema: {
        operationId: 'pauseSandbox',
        summary: 'Pause a sandbox: seal a checkpoint of it',
        description:
          'For a paused sandbox the answer is the same. When the pause fails, the sandbox continues to run.',
        tags,
        params: sandboxParams,
        body: pauseRequestSchema,
        response: { 200: json('The sandbox is paused.', pauseReplySchema), ...errors(...sealing) },
      },
    },
    async (request) => {
      const { id } = request.params;
      const reply = await runVerb(ctx, request, id, (caller) => engine.pause(caller, id, request.body));
      const { warm, warmReason } = reply.sandbox;
      return { ...reply, sandbox: withUrls(ctx, reply.sandbox), warm: warm === true, warmReason };
    },
  );

  app.post(
    '/v1/sandboxes/:id/resume',
    {
      config,
      schema: {
        operationId: 'resumeSandbox',
        summary: 'Resume a sandbox',
        description:
          'A paused sandbox runs for `timeoutSeconds`, or without it for its configured timeout. A sandbox that runs ' +
          'already gets the same answer, and `timeoutSeconds` never sets its end earlier. `source` says what it was ' +
          'started from, `lost` what is missing.',
        tags,
        params: sandboxParams,
        body: resumeRequestSchema,
        response: { 200: json('The sandbox runs.', resumeReplySchema), ...errors(...starting) },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { operation: _, ...reply } = await runVerb(ctx, request, id, (caller) =>
        engine.resume(caller, id, request.body),
      );
      return { ...reply, sandbox: withUrls(ctx, reply.sandbox) };
    },
  );

  app.post(
    '/v1/sandboxes/:id/fork',
    {
      config,
      schema: {
        operationId: 'forkSandbox',
        summary: 'Make new sandboxes from the current state of this one',
        description: 'Fields that are not given are inherited, except the name and the named checkpoints.',
        tags,
        params: sandboxParams,
        body: forkRequestSchema,
        response: {
          201: json('One item per fork.', forkReplySchema),
          ...errors(...sealing, 'quota_exceeded', 'capacity'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { forks } = await runVerb(ctx, request, id, (caller) => engine.fork(caller, id, request.body));
      const items = forks.map((one) => ('sandbox' in one ? { sandbox: withUrls(ctx, one.sandbox) } : one));
      return reply.code(201).send({ items });
    },
  );

  app.post(
    '/v1/sandboxes/:id/checkpoints',
    {
      config,
      schema: {
        operationId: 'createCheckpoint',
        summary: 'Seal a checkpoint without stopping the sandbox',
        tags,
        params: sandboxParams,
        body: snapshotRequestSchema,
        response: {
          201: json('The sealed checkpoint.', checkpointViewSchema),
          ...errors(...sealing, 'quota_exceeded'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { checkpoint } = await runVerb(ctx, request, id, (caller) =>
        engine.snapshot(caller, id, request.body),
      );
      return reply.code(201).send(checkpoint);
    },
  );

  app.post(
    '/v1/sandboxes/:id/rollback',
    {
      config,
      schema: {
        operationId: 'rollbackSandbox',
        summary: 'Return a sandbox to one of its checkpoints',
        tags,
        params: sandboxParams,
        body: rollbackRequestSchema,
        response: {
          200: json('The sandbox runs from the checkpoint.', resumeReplySchema),
          ...errors(...sealing, ...starting),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { operation: _, ...reply } = await runVerb(ctx, request, id, (caller) =>
        engine.rollback(caller, id, request.body),
      );
      return { ...reply, sandbox: withUrls(ctx, reply.sandbox) };
    },
  );
}
