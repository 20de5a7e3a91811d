/** How the server itself is: for probes, for Prometheus, and for whoever wants to know its API. */
import { totalsOfOrgs } from '@torpor/engine';
import { DISK_LEVELS, healthSchema } from '@torpor/protocol';
import { z } from 'zod';
import { requireOperator } from '../http/org-id.ts';
import { RequestDeadline } from '../http/request-deadline.ts';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

/** A probe waits less long than people do. */
const PROBE_MS = 1_000;

/** So many organisations have figures of their own in the metrics. */
const ORGS_APART = 100;

export function healthRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine, db, clock, metrics, version } = ctx;
  const began = clock.monotonic();
  const tags = ['server'];
  metrics.watchOrgs(() => totalsOfOrgs(db, clock.now(), ORGS_APART));

  app.get(
    '/health',
    {
      config: { access: 'open' },
      schema: {
        operationId: 'getHealth',
        summary: 'Whether the server can work',
        tags,
        security: [],
        response: {
          200: json('It can. A full disk degrades it.', healthSchema),
          503: json('It cannot reach its database.', healthSchema),
        },
      },
    },
    async (_, reply) => {
      const reached = await probing(clock, () => db.query('SELECT 1 AS one')).then(
        () => true,
        () => false,
      );
      const disk = engine.disk()?.level ?? 'ok';
      const well = reached && (disk === 'ok' || disk === 'low');
      return reply.code(reached ? 200 : 503).send({
        status: well ? 'ok' : 'degraded',
        version,
        runtime: engine.runtimes().find((runtime) => runtime.default)?.name ?? '',
        database: reached ? 'ok' : 'unavailable',
        disk,
        uptimeSeconds: Math.round((clock.monotonic() - began) / 1_000),
      });
    },
  );

  app.get(
    '/metrics',
    {
      config: { access: 'loopback' },
      schema: {
        operationId: 'getMetrics',
        summary: 'Figures for Prometheus',
        description:
          'Without a key only from the machine itself, and not through a proxy; else with an operator key, because ' +
          'the figures are those of all organisations.',
        tags,
        response: {
          200: {
            description: 'The text format of Prometheus.',
            content: { 'text/plain': { schema: z.string() } },
          },
          ...errors('forbidden'),
        },
      },
    },
    async (request, reply) => {
      if (request.identity) requireOperator(request.identity);
      await countCheckpoints(ctx);
      measureDisk(ctx);
      const text = await request.deadline.run(() => metrics.registry.metrics());
      return reply.header('content-type', metrics.registry.contentType).send(text);
    },
  );

  app.get('/v1/openapi.json', { config: { access: 'open' }, schema: { hide: true } }, async (_, reply) =>
    reply.header('cache-control', 'no-cache').send(app.swagger()),
  );
}

/** A database that does not answer leaves the figures of the last time. */
async function countCheckpoints({ engine, clock, metrics }: RouteContext): Promise<void> {
  const counts = await probing(clock, () => engine.checkpointHealthCounts()).catch(() => undefined);
  for (const [health, count] of Object.entries(counts ?? {}))
    metrics.checkpointsUnhealthy.set({ health }, count);
}

function measureDisk({ engine, metrics }: RouteContext): void {
  const disk = engine.disk();
  if (disk === undefined) return;
  metrics.diskFree.set(disk.freeBytes);
  metrics.diskTotal.set(disk.totalBytes);
  metrics.diskReserve.set(disk.reserve?.heldBytes ?? 0);
  for (const level of DISK_LEVELS) metrics.diskLevel.set({ level }, level === disk.level ? 1 : 0);
}

async function probing<T>(clock: RouteContext['clock'], work: () => Promise<T>): Promise<T> {
  const probe = new RequestDeadline(clock, PROBE_MS, 0);
  return probe.run(work).finally(() => probe.release());
}
