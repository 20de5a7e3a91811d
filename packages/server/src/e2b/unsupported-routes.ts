/** Routes of E2B's API that Torpor does not support yet. They answer with a clear error instead of 404. */
import { TorporError } from '@torpor/protocol';
import type { RoutesApp } from '../http/routes-app.ts';

const BUILDS = 'Builds that push an image with Docker (the first version of this API)';

const UNSUPPORTED: readonly (readonly [
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  what: string,
])[] = [
  ['POST', '/templates', BUILDS],
  ['POST', '/templates/:id', BUILDS],
  ['POST', '/templates/:id/builds/:build', BUILDS],
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
