/**
 * The metrics of a running sandbox, from its agent. The agent sees the disk of the host; where the runtime limits the disk
 * space of the sandbox, the limit and the space that counts towards it take its place.
 */
import type { Engine } from '@torpor/engine';
import type { Metrics } from '@torpor/envd';
import type { SandboxId } from '@torpor/protocol';
import { fromAgentError } from './agent-failure.ts';
import { connectToAgent } from './sandbox-connection.ts';

export async function readSandboxMetrics(
  engine: Pick<Engine, 'agent' | 'diskUsage'>,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<Omit<Metrics, '$typeName' | '$unknown'>> {
  const agent = connectToAgent(await engine.agent(org, id));
  try {
    const read = agent.metrics({ signal }).catch((thrown: unknown) => {
      throw fromAgentError(thrown, id);
    });
    const [metrics, disk] = await Promise.all([read, engine.diskUsage(org, id)]);
    if (disk === undefined) return metrics;
    return { ...metrics, diskUsed: disk.usedBytes, diskTotal: disk.limitBytes };
  } finally {
    agent.close();
  }
}
