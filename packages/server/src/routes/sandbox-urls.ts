/** A sandbox as an answer shows it: with the addresses at which its declared ports can be visited. */
import { isTerminal, type SandboxView } from '@torpor/protocol';
import type { RouteContext } from '../route-context.ts';

/** Also of one that sleeps: a visit wakes it. */
export function withUrls({ gateway }: Pick<RouteContext, 'gateway'>, sandbox: SandboxView): SandboxView {
  const urls: Record<string, string> = {};
  if (gateway !== undefined && !isTerminal(sandbox.state)) {
    for (const { port } of sandbox.services) {
      if (port !== undefined) urls[String(port)] = gateway.urlOf(sandbox.id, port);
    }
  }
  return { ...sandbox, urls };
}
