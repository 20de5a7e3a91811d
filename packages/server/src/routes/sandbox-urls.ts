/** Adds the preview addresses of the declared ports to a sandbox in an answer. */
import { isTerminal, type SandboxView } from '@torpor/protocol';
import type { RouteContext } from '../route-context.ts';

/** Also for a paused sandbox: a request to the address wakes it. */
export function withUrls({ gateway }: Pick<RouteContext, 'gateway'>, sandbox: SandboxView): SandboxView {
  const urls: Record<string, string> = {};
  if (gateway !== undefined && !isTerminal(sandbox.state)) {
    for (const { port } of sandbox.services) {
      if (port !== undefined) urls[String(port)] = gateway.urlOf(sandbox.id, port);
    }
  }
  return { ...sandbox, urls };
}
