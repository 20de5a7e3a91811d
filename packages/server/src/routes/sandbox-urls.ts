/** A sandbox as an answer shows it: with the addresses at which its declared ports are served. */
import type { SandboxView } from '@torpor/protocol';
import type { RouteParts } from '../parts.ts';

export function withUrls({ urlOf }: Pick<RouteParts, 'urlOf'>, sandbox: SandboxView): SandboxView {
  const ports = sandbox.services.flatMap(({ port }) => (port === undefined ? [] : [port]));
  return {
    ...sandbox,
    urls: Object.fromEntries(ports.map((port) => [String(port), urlOf(sandbox.id, port)])),
  };
}
