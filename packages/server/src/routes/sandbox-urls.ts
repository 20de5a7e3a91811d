/** A sandbox as an answer shows it: with the addresses at which its declared ports can be reached now. */
import type { Address } from '@torpor/engine';
import type { SandboxView } from '@torpor/protocol';
import type { RouteParts } from '../parts.ts';

/** Of a sandbox that runs; a port that nothing of it listens on has no address. */
export async function withUrls(
  { engine }: Pick<RouteParts, 'engine'>,
  org: string,
  sandbox: SandboxView,
): Promise<SandboxView> {
  const urls: Record<string, string> = {};
  if (sandbox.state === 'running') {
    for (const { port } of sandbox.services) {
      const address = port === undefined ? null : await engine.dial(org, sandbox.id, port).catch(() => null);
      const url = address === null ? null : urlAt(address);
      if (url !== null) urls[String(port)] = url;
    }
  }
  return { ...sandbox, urls };
}

export function urlAt(address: Address): string | null {
  if ('socketPath' in address) return null;
  const { host, port } = address;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
