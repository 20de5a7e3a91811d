/**
 * The metrics of a running sandbox. Its agent reads what programs of the sandbox read, so that both see the same figures.
 * The runtime adds the disk limit of the sandbox: `df` shows the limit only where the kernel enforces it.
 */
import type { DiskUsage, Engine } from '@torpor/engine';
import type { Metrics } from '@torpor/envd';
import type { SandboxId } from '@torpor/protocol';
import { fromAgentError } from './agent-failure.ts';
import { connectToAgent } from './sandbox-connection.ts';

export interface SandboxReadings {
  readonly agent: Metrics;
  /** Undefined when the runtime does not limit disk space. */
  readonly diskLimit: DiskUsage | undefined;
}

export async function readSandboxMetrics(
  engine: Pick<Engine, 'agent' | 'diskUsage'>,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<SandboxReadings> {
  const agent = connectToAgent(await engine.agent(org, id));
  try {
    const read = agent.metrics({ signal }).catch((thrown: unknown) => {
      throw fromAgentError(thrown, id);
    });
    const [metrics, diskLimit] = await Promise.all([read, engine.diskUsage(org, id)]);
    return { agent: metrics, diskLimit };
  } finally {
    agent.close();
  }
}
