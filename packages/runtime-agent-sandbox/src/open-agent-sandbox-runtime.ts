/** Opens the runtime whose sandboxes are Sandbox resources of kubernetes-sigs/agent-sandbox. */
import { openPodWorlds, type PodWorldOptions } from '@torpor/pods';
import { AGENT_SANDBOX_CAPABILITIES, AgentSandboxRuntime } from './agent-sandbox-runtime.ts';

export async function agentSandboxRuntime(
  options: Omit<PodWorldOptions, 'runtime'>,
): Promise<AgentSandboxRuntime> {
  const worlds = await openPodWorlds({ ...options, runtime: 'agent-sandbox' });
  return new AgentSandboxRuntime(worlds, options.podSettings);
}

export { AGENT_SANDBOX_CAPABILITIES };
