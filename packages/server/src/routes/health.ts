/** The server itself: health for probes, metrics for Prometheus, and the OpenAPI document. */
import { totalsOfOrgs } from '@torpor/engine';
import { DISK_LEVELS, healthSchema } from '@torpor/protocol';
import { z } from 'zod';
import { requireOperator } from '../http/org-id.ts';
import { RequestDeadline } from '../http/request-deadline.ts';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

/** Probes have short timeouts. */
const PROBE_MS = 1_000;

/** How many organisations have metrics of their own. */
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
        summary: 'Whether the server works',
        tags,
        security: [],
        response: {
          200: json('The server works. A full disk makes it `degraded`.', healthSchema),
          503: json('The server cannot reach its database.', healthSchema),
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
        summary: 'Metrics for Prometheus',
        description:
          'Needs no key from the machine itself, unless a proxy forwards the request. Otherwise it needs an operator ' +
          'key, because the metrics cover all organisations.',
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
      await countNodes(ctx);
      measureDisk(ctx);
      const text = await request.deadline.run(() => metrics.registry.metrics());
      return reply.header('content-type', metrics.registry.contentType).send(text);
    },
  );

  app.get('/v1/openapi.json', { config: { access: 'open' }, schema: { hide: true } }, async (_, reply) =>
    reply.header('cache-control', 'no-cache').send(app.swagger()),
  );
}

/** When the database does not answer, the metrics keep their last values. */
async function countCheckpoints({ engine, clock, metrics }: RouteContext): Promise<void> {
  const counts = await probing(clock, () => engine.checkpointHealthCounts()).catch(() => undefined);
  for (const [health, count] of Object.entries(counts ?? {}))
    metrics.checkpointsUnhealthy.set({ health }, count);
  const replication = await probing(clock, () => engine.replication()).catch(() => undefined);
  if (replication !== undefined) metrics.checkpointsWaiting.set(replication.waiting);
}

/** Every node knows all of them. A server that is alone has no such metrics. */
async function countNodes({ engine, clock, metrics }: RouteContext): Promise<void> {
  if (!engine.directory.isClustered) return;
  const nodes = await probing(clock, () => engine.nodes()).catch(() => undefined);
  if (nodes === undefined) return;
  metrics.nodeSandboxes.reset();
  metrics.nodeMemory.reset();
  for (const state of ['alive', 'away'] as const) {
    metrics.nodes.set({ state }, nodes.filter((node) => node.state === state).length);
  }
  for (const { name: node, used, capacity } of nodes) {
    for (const state of ['running', 'paused', 'unknown'] as const) {
      metrics.nodeSandboxes.set({ node, state }, used[state]);
    }
    metrics.nodeMemory.set({ node, what: 'total' }, capacity.memoryMb);
    metrics.nodeMemory.set({ node, what: 'used' }, used.memoryMb);
  }
}

function measureDisk({ engine, metrics }: RouteContext): void {
  const cache = engine.cache();
  if (cache !== undefined) metrics.cacheBytes.set(cache.bytes);
  if (typeof cache?.limitBytes === 'number') metrics.cacheLimit.set(cache.limitBytes);
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
