/** E2B's API: a Fastify scope of its own, because errors have the shape that E2B's clients expect. */
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { answerE2bFailure } from './failures.ts';
import { e2bLifecycleRoutes } from './lifecycle.ts';
import { e2bLifetimeRoutes } from './lifetimes.ts';
import { e2bMetricsAndLogRoutes } from './metrics-and-logs.ts';
import { e2bSandboxRoutes } from './sandboxes.ts';
import { e2bSignedFileRoutes } from './signed-files.ts';
import { e2bSnapshotRoutes } from './snapshots.ts';
import { e2bTemplateBuildRoutes } from './template-builds.ts';
import { e2bTemplateRoutes } from './templates.ts';
import { e2bUnsupportedRoutes } from './unsupported-routes.ts';

const ROUTES = [
  e2bSandboxRoutes,
  e2bLifecycleRoutes,
  e2bLifetimeRoutes,
  e2bSnapshotRoutes,
  e2bTemplateRoutes,
  e2bTemplateBuildRoutes,
  e2bMetricsAndLogRoutes,
  e2bSignedFileRoutes,
  e2bUnsupportedRoutes,
];

export function e2bRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.register(async (scope: RoutesApp) => {
    scope.setErrorHandler((thrown, request, reply) => answerE2bFailure(ctx, thrown, request, reply));
    for (const addRoutes of ROUTES) addRoutes(scope, ctx);
  });
}
