/** Opens the runtime whose sandboxes are Sandbox resources of kubernetes-sigs/agent-sandbox. */
import { openPodWorld, type PodWorldOptions } from '@torpor/pods';
import { AGENT_SANDBOX_CAPABILITIES, AgentSandboxRuntime } from './agent-sandbox-runtime.ts';

export async function agentSandboxRuntime(
  options: Omit<PodWorldOptions, 'runtime'>,
): Promise<AgentSandboxRuntime> {
  return new AgentSandboxRuntime(await openPodWorld({ ...options, runtime: 'agent-sandbox' }));
}

export { AGENT_SANDBOX_CAPABILITIES };
