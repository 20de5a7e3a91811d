/** Lets a sandbox that uses secrets trust the egress, which opens its connections to the hosts of the secrets. */
import type { Instance } from '@torpor/engine';
import type { AgentClient } from '@torpor/envd';
import type { Network } from '@torpor/protocol';
import type { RuntimeContext } from '../runtime-context.ts';

export function usesSecrets({ secrets = [] }: Network): boolean {
  return secrets.length > 0;
}

/** A sandbox that cannot trust the egress runs all the same. Its programs refuse the certificates of the egress. */
export async function trustEgress(
  { network, report }: Pick<RuntimeContext, 'network' | 'report'>,
  instance: Instance,
  agent: AgentClient,
  signal: AbortSignal,
): Promise<void> {
  const authority = await network.authority();
  await agent.trust(authority, { signal }).catch((error: unknown) => {
    signal.throwIfAborted();
    report('a sandbox does not trust the egress, so its requests with secrets fail', { ...instance, error });
  });
}
