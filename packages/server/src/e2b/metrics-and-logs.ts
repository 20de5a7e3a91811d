/** The current metrics of a sandbox, from its agent, and its logs, from the ledger. */
import type { EventView, SandboxId, SandboxView } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { readSandboxMetrics } from '../sandbox/sandbox-metrics.ts';
import { idParams } from './route-params.ts';
import { shownState } from './sandbox-shapes.ts';

const unixSeconds = z.coerce.number().int().min(0).optional();
const milliseconds = z.coerce.number().int().min(0).max(8_640_000_000_000_000).optional();
const limitSchema = z.coerce.number().int().min(0).max(1_000).default(1_000);
const metricsQuery = z.object({ start: unixSeconds, end: unixSeconds });

export function e2bMetricsAndLogRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.get(
    '/sandboxes/:id/metrics',
    { schema: { hide: true, params: idParams, querystring: metricsQuery } },
    async (request) => {
      const { id } = request.params;
      const { start = 0, end = Number.POSITIVE_INFINITY } = request.query;
      const sandbox = await request.deadline.run(() => ctx.engine.get(request.identity.org, id));
      // There is no history of metrics: another time range gets an empty list. No sandbox is woken.
      const metrics = await metricsOf(ctx, request, sandbox);
      return metrics.filter(({ timestampUnix: at }) => at >= start && at <= end);
    },
  );

  app.get(
    '/sandboxes/metrics',
    { schema: { hide: true, querystring: z.object({ sandbox_ids: z.string().max(4_000) }) } },
    async (request) => {
      const ids = request.query.sandbox_ids.split(',').slice(0, 100);
      const found = await Promise.all(
        ids.map(async (text) => {
          const id = idParams.safeParse({ id: text });
          if (!id.success) return [];
          const sandbox = await ctx.engine.get(request.identity.org, id.data.id).catch(() => undefined);
          const [metrics] = sandbox === undefined ? [] : await metricsOf(ctx, request, sandbox);
          return metrics === undefined ? [] : [[text, metrics] as const];
        }),
      );
      return { sandboxes: Object.fromEntries(found.flat()) };
    },
  );

  app.get(
    '/sandboxes/:id/logs',
    {
      schema: {
        hide: true,
        params: idParams,
        querystring: z.object({ start: milliseconds, limit: limitSchema }),
      },
    },
    async (request) => {
      const { start = 0, limit } = request.query;
      const events = await eventsOf(ctx, request, request.params.id);
      const shown = events.filter(({ at }) => at >= start).slice(0, limit);
      return { logs: shown.map(lineShape), logEntries: shown.map(entryShape) };
    },
  );

  app.get(
    '/v2/sandboxes/:id/logs',
    {
      schema: {
        hide: true,
        params: idParams,
        querystring: z.object({
          cursor: milliseconds,
          limit: limitSchema,
          direction: z.enum(['forward', 'backward']).default('forward'),
          level: z.enum(['debug', 'info', 'warn', 'error']).optional(),
          search: z.string().max(200).optional(),
        }),
      },
    },
    async (request) => {
      const { cursor, limit, direction, level, search } = request.query;
      const all = (await eventsOf(ctx, request, request.params.id)).map(entryShape);
      const ordered = direction === 'forward' ? all : all.toReversed();
      const at = (time: string) => new Date(time).getTime();
      const logs = ordered
        .filter(({ timestamp }) => {
          if (cursor === undefined) return true;
          return direction === 'forward' ? at(timestamp) >= cursor : at(timestamp) <= cursor;
        })
        .filter((entry) => level === undefined || LEVELS.indexOf(entry.level) >= LEVELS.indexOf(level))
        .filter(({ message }) => search === undefined || message.includes(search));
      return { logs: logs.slice(0, limit) };
    },
  );
}

async function metricsOf(ctx: RouteContext, request: FastifyRequest, sandbox: SandboxView) {
  if (shownState(sandbox) !== 'running') return [];
  const { agent } = await request.deadline.run((signal) =>
    readSandboxMetrics(ctx.engine, request.identity.org, sandbox.id, signal),
  );
  const { cpuCount, cpuUsedPct, memUsed, memTotal, memCache, diskUsed, diskTotal } = agent;
  const now = ctx.clock.now();
  return [
    {
      timestamp: new Date(now).toISOString(),
      timestampUnix: Math.floor(now / 1_000),
      cpuCount,
      cpuUsedPct,
      memUsed,
      memTotal,
      memCache,
      diskUsed,
      diskTotal,
    },
  ];
}

/** Only the newest events of a long history are read. */
const MAX_EVENTS = 1_000;

async function eventsOf({ engine }: RouteContext, request: FastifyRequest, sandboxId: SandboxId) {
  request.logFields.sandboxId = sandboxId;
  return request.deadline.run(async () => {
    await engine.get(request.identity.org, sandboxId);
    const newest = await engine.newest({ sandboxId, afterSeq: 0 });
    return engine.events({ sandboxId, afterSeq: Math.max(0, newest - MAX_EVENTS) }, MAX_EVENTS);
  });
}

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

function levelOf({ type }: EventView): (typeof LEVELS)[number] {
  if (/_failed$|\.failed$|\.lost$/.test(type)) return 'error';
  return type === 'sandbox.recovered' || type === 'reconcile.repaired' ? 'warn' : 'info';
}

function entryShape(event: EventView) {
  const { at, type, state, data } = event;
  const fields = Object.fromEntries(
    Object.entries(data).map(([name, value]) => [name, JSON.stringify(value)]),
  );
  return {
    timestamp: new Date(at).toISOString(),
    message: type,
    level: levelOf(event),
    fields: { ...fields, logger: 'torpor', state },
  };
}

function lineShape(event: EventView) {
  const { timestamp, level, message, fields } = entryShape(event);
  return { timestamp, line: JSON.stringify({ level, message, timestamp, ...fields }) };
}
