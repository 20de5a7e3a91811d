/** Services of a sandbox at a provider: those that came back with the memory are kept, the others are started. */
import type { AgentClient } from '@torpor/envd';
import { Signal, serviceTag } from '@torpor/envd';
import type { Service } from '@torpor/protocol';
import { type ServiceContext, startServices } from '@torpor/runtime-shared';

/** What lingers would hold the ports that the services need. That it cannot be ended is no reason not to try (R30). */
export async function endLingering(agent: AgentClient, signal: AbortSignal): Promise<void> {
  try {
    const { processes } = await agent.process.list({}, { signal });
    for (const { pid } of processes) {
      const process = { selector: { case: 'pid' as const, value: pid } };
      await agent.process.sendSignal({ process, signal: Signal.SIGKILL }, { signal }).catch(() => {});
    }
  } catch {
    // See above.
  } finally {
    agent.close();
  }
}

export async function startWhatIsMissing(
  ground: ServiceContext,
  services: readonly Service[],
  signal: AbortSignal,
): Promise<void> {
  const { processes } = await ground.agent.process.list({}, { signal });
  const tags = new Set(processes.map(({ tag }) => tag));
  for (const service of services) {
    const { name, port } = service;
    const runs = port === undefined ? tags.has(serviceTag(name)) : (await ground.dial(port)) !== null;
    if (!runs) await startServices(ground, [service], signal);
  }
}
