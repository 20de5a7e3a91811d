/** Starts the declared services that do not run yet. Services that were restored with the memory keep running. */
import type { AgentClient } from '@torpor/envd';
import { Signal, serviceTag } from '@torpor/envd';
import type { Service } from '@torpor/protocol';
import { type ServiceContext, startServices } from '@torpor/runtime-shared';

/**
 * Kills the remaining processes, which would hold the ports that the services need. A failure is ignored: the services may
 * start all the same (R30).
 */
export async function killProcesses(agent: AgentClient, signal: AbortSignal): Promise<void> {
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

export async function ensureServices(
  ctx: ServiceContext,
  services: readonly Service[],
  signal: AbortSignal,
): Promise<void> {
  const { processes } = await ctx.agent.process.list({}, { signal });
  const tags = new Set(processes.map(({ tag }) => tag));
  for (const service of services) {
    const { name, port } = service;
    const isRunning = port === undefined ? tags.has(serviceTag(name)) : (await ctx.dial(port)) !== null;
    if (!isRunning) await startServices(ctx, [service], signal);
  }
}
