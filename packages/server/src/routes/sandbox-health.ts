/** Health, usage and drives of a sandbox. None of these routes wakes the sandbox. */
import {
  type DriveView,
  driveViewSchema,
  pageSchema,
  type SandboxId,
  type SandboxMetrics,
  sandboxHealthSchema,
  sandboxMetricsSchema,
} from '@torpor/protocol';
import { errors, json, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { healthOf } from '../sandbox/health.ts';
import { readSandboxMetrics } from '../sandbox/sandbox-metrics.ts';

export function sandboxHealthRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.get(
    '/v1/sandboxes/:id/health',
    {
      schema: {
        operationId: 'getSandboxHealth',
        summary: 'The state of a sandbox, and whether its agent answers',
        description:
          'Answers in every state, within a few seconds. Never wakes the sandbox and does not count as use. An agent ' +
          'that does not answer is `silent`, with the reason in `agentError`.',
        tags: ['sandboxes'],
        params: sandboxParams,
        response: { 200: json('The health.', sandboxHealthSchema), ...errors('not_found') },
      },
    },
    async (request) => {
      const { id } = request.params;
      request.logFields.sandboxId = id;
      return request.deadline.run(() => healthOf(ctx, request.identity.org, id));
    },
  );

  app.get(
    '/v1/sandboxes/:id/metrics',
    {
      schema: {
        operationId: 'getSandboxMetrics',
        summary: 'What a running sandbox uses now',
        description:
          'Never wakes the sandbox and does not count as use. For a sandbox that does not run, the error says which ' +
          'state it is in. The server keeps no history: ask regularly for one.',
        tags: ['sandboxes'],
        params: sandboxParams,
        response: {
          200: json('The usage at this moment.', sandboxMetricsSchema),
          ...errors('not_found', 'transitioning', 'conflict', 'killed', 'lost'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      request.logFields.sandboxId = id;
      return request.deadline.run((signal) => metricsOf(ctx, request.identity.org, id, signal));
    },
  );

  app.get(
    '/v1/sandboxes/:id/drives',
    {
      schema: {
        operationId: 'listDrives',
        summary: 'The filesystems of a sandbox, with their size and usage',
        description:
          'Never wakes the sandbox. For a sandbox that does not run, the error says which state it is in. ' +
          'Size, usage and free space are those that `df` shows in the sandbox: of its disk limit where the kernel ' +
          'enforces it, else of the disk that holds the sandbox.',
        tags: ['sandboxes'],
        params: sandboxParams,
        response: {
          200: json('All filesystems.', pageSchema(driveViewSchema)),
          ...errors('not_found', 'transitioning', 'conflict', 'killed', 'lost'),
        },
      },
    },
    async (request) => {
      const { id } = request.params;
      request.logFields.sandboxId = id;
      const items = await request.deadline.run((signal) => drivesOf(ctx, request.identity.org, id, signal));
      return { items, nextCursor: null };
    },
  );
}

async function metricsOf(
  { engine, clock }: RouteContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<SandboxMetrics> {
  const { agent: used, diskLimit } = await readSandboxMetrics(engine, org, id, signal);
  return {
    at: clock.now(),
    cpuCount: used.cpuCount,
    cpuUsedPercent: used.cpuUsedPct,
    memoryUsedBytes: used.memUsed,
    memoryTotalBytes: used.memTotal,
    diskUsedBytes: used.diskUsed,
    diskTotalBytes: used.diskTotal,
    diskLimitBytes: diskLimit?.limitBytes ?? null,
    diskCountedBytes: diskLimit?.usedBytes ?? null,
  };
}

/** Reports the root only: every runtime gives a sandbox a root filesystem, and every agent reports it. */
async function drivesOf(
  { engine }: RouteContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<DriveView[]> {
  const { agent, diskLimit } = await readSandboxMetrics(engine, org, id, signal);
  const { diskTotal, diskUsed, diskFree = Math.max(0, diskTotal - diskUsed) } = agent;
  return [
    {
      path: '/',
      totalBytes: diskTotal,
      usedBytes: diskUsed,
      freeBytes: diskFree,
      limitBytes: diskLimit?.limitBytes ?? null,
      countedBytes: diskLimit?.usedBytes ?? null,
    },
  ];
}
