/** Routes of E2B's API that Torpor does not support yet. They answer with a clear error instead of 404. */
import { TorporError } from '@torpor/protocol';
import type { RoutesApp } from '../http/routes-app.ts';

const BUILDS = 'Building templates through this API';

const UNSUPPORTED: readonly (readonly [
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  what: string,
])[] = [
  ['POST', '/templates', BUILDS],
  ['POST', '/v2/templates', BUILDS],
  ['POST', '/v3/templates', BUILDS],
  ['POST', '/templates/:id', BUILDS],
  ['PATCH', '/templates/:id', BUILDS],
  ['PATCH', '/v2/templates/:id', BUILDS],
  ['GET', '/templates/:id/files/:hash', BUILDS],
  ['POST', '/templates/:id/builds/:build', BUILDS],
  ['POST', '/v2/templates/:id/builds/:build', BUILDS],
  ['GET', '/templates/:id/builds/:build/status', BUILDS],
  ['GET', '/templates/:id/builds/:build/logs', BUILDS],
  ['POST', '/templates/tags', 'Tags of templates'],
  ['DELETE', '/templates/tags', 'Tags of templates'],
  ...['/volumes', '/volumes/*'].flatMap((path) => everyMethod(path, 'Volumes')),
  ...['/secrets', '/secrets/*'].flatMap((path) => everyMethod(path, 'Secrets')),
];

function everyMethod(path: string, what: string) {
  return (['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const).map((method) => [method, path, what] as const);
}

export function e2bUnsupportedRoutes(app: RoutesApp): void {
  for (const [method, url, what] of UNSUPPORTED) {
    app.route({
      method,
      url,
      schema: { hide: true },
      handler: async () => {
        throw new TorporError('capability_unsupported', `${what}: not supported yet.`, {
          hint: 'docs/coming-from-e2b.md lists what is supported.',
        });
      },
    });
  }
}
