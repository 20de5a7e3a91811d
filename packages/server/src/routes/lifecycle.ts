/** What a sandbox goes through: pause, resume, fork, snapshot, rollback. */
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
import { lifecycle } from '../http/lifecycle.ts';
import { errors, json, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteParts } from '../parts.ts';
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

export function lifecycleRoutes(app: RoutesApp, parts: RouteParts): void {
  const { engine } = parts;
  const config = { bound: 'lifecycle' } as const;
  const tags = ['lifecycle'];

  app.post(
    '/v1/sandboxes/:id/pause',
    {
      config,
      schema: {
        operationId: 'pauseSandbox',
        summary: 'Put a sandbox to sleep: seal a checkpoint of it',
        description:
          'A sandbox that is paused already answers the same. When it fails, the sandbox goes on running.',
        tags,
        params: sandboxParams,
        body: pauseRequestSchema,
        response: { 200: json('It is paused.', pauseReplySchema), ...errors(...sealing) },
      },
    },
    async (request) => {
      const { id } = request.params;
      const reply = await lifecycle(parts, request, id, (caller) => engine.pause(caller, id, request.body));
      return { ...reply, sandbox: withUrls(parts, reply.sandbox) };
    },
  );

  app.post(
    '/v1/sandboxes/:id/resume',
    {
      config,
      schema: {
        operationId: 'resumeSandbox',
        summary: 'Wake a sandbox',
        description:
          'One that is running answers the same, and its life is never shortened. Without `timeoutSeconds` ' +
          'the configured lifetime starts again. `source` and `lost` say what it came back from, and without what.',
        tags,
        params: sandboxParams,
        body: resumeRequestSchema,
        response: { 200: json('It runs.', resumeReplySchema), ...errors(...starting) },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { operation: _, ...reply } = await lifecycle(parts, request, id, (caller) =>
        engine.resume(caller, id, request.body),
      );
      return { ...reply, sandbox: withUrls(parts, reply.sandbox) };
    },
  );

  app.post(
    '/v1/sandboxes/:id/fork',
    {
      config,
      schema: {
        operationId: 'forkSandbox',
        summary: 'Make new sandboxes from what this one is at this moment',
        description: 'What is not given is inherited. The name and the named checkpoints are not.',
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
      const { forks } = await lifecycle(parts, request, id, (caller) =>
        engine.fork(caller, id, request.body),
      );
      const items = forks.map((one) => ('sandbox' in one ? { sandbox: withUrls(parts, one.sandbox) } : one));
      return reply.code(201).send({ items });
    },
  );

  app.post(
    '/v1/sandboxes/:id/checkpoints',
    {
      config,
      schema: {
        operationId: 'createCheckpoint',
        summary: 'Seal a checkpoint of a sandbox that goes on as it was',
        tags,
        params: sandboxParams,
        body: snapshotRequestSchema,
        response: {
          201: json('It is sealed.', checkpointViewSchema),
          ...errors(...sealing, 'quota_exceeded'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { checkpoint } = await lifecycle(parts, request, id, (caller) =>
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
        summary: 'Bring a sandbox back to one of its checkpoints, in place',
        tags,
        params: sandboxParams,
        body: rollbackRequestSchema,
        response: { 200: json('It runs from there.', resumeReplySchema), ...errors(...sealing, ...starting) },
      },
    },
    async (request) => {
      const { id } = request.params;
      const { operation: _, ...reply } = await lifecycle(parts, request, id, (caller) =>
        engine.rollback(caller, id, request.body),
      );
      return { ...reply, sandbox: withUrls(parts, reply.sandbox) };
    },
  );
}
