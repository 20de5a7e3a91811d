/** `/api/generation/*` and `/api/jobs/*`. Existing programs rely on these exact routes and fields. */
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { generationRoutes } from './generation-routes.ts';
import { jobRoutes } from './job-routes.ts';
import { previewRoutes } from './preview-routes.ts';

export function buildRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { builds } = ctx;
  if (builds === undefined) return;
  generationRoutes(app, ctx, builds);
  previewRoutes(app, ctx, builds);
  jobRoutes(app, ctx, builds);
}
