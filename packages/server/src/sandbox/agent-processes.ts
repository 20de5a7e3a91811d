/** The engine's port to the processes of jobs, implemented with the agent. */
import type { AgentAddress, ProcessEnd, Processes } from '@torpor/engine';
import { type AgentClient, agentError } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { commandOf } from './command.ts';
import { endOf } from './command-end.ts';
import { connectToAgent } from './sandbox-connection.ts';

export const agentProcesses: Processes = {
  list: (address, signal) =>
    withClient(address, async (agent) => {
      const { processes } = await agent.process.list({}, { signal });
      return processes.flatMap(({ tag, pid, config }) => {
        if (tag === undefined) return [];
        const command = config === undefined ? '' : commandOf(config);
        return { tag, pid, command, cwd: config?.cwd ?? null };
      });
    }),

  endOf: (address, tag, signal) => withClient(address, (agent) => untilEnded(agent, tag, signal)),

  nextEnd: (address, tags, signal) =>
    withClient(address, async (agent) => {
      const { tag, end } = await agent.nextEnd(tags, { signal });
      return { tag, end: end === null ? null : endOf(end) };
    }).catch((thrown: unknown) => {
      if (agentError(thrown).code !== 'not_found') throw thrown;
      throw new TorporError('capability_unsupported', 'This agent cannot report ends of processes.', {
        cause: thrown,
      });
    }),
};

/** Waits for the end of a process. Null when the agent does not know the process; it remembers ends for a while. */
export async function untilEnded(
  agent: AgentClient,
  tag: string,
  signal: AbortSignal,
): Promise<ProcessEnd | null> {
  const process = { selector: { case: 'tag' as const, value: tag } };
  try {
    for await (const { event } of agent.process.connect({ process }, { signal })) {
      if (event?.event.case === 'end') return endOf(event.event.value);
    }
  } catch (thrown) {
    if (agentError(thrown).code === 'not_found') return null;
    throw thrown;
  }
  throw new TorporError('unreachable', 'The connection to the agent broke before the process ended.');
}

async function withClient<T>(address: AgentAddress, work: (agent: AgentClient) => Promise<T>): Promise<T> {
  const agent = connectToAgent(address);
  try {
    return await work(agent);
  } finally {
    agent.close();
  }
}
