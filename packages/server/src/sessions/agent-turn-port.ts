/** The port of sessions to the program in a sandbox, implemented with the agent. */
import { type AgentClient, agentError } from '@torpor/envd';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { DeliveryReceipt, ProgramOutput, TurnMessage, TurnPort } from '@torpor/sessions';
import type { ConnectToAgent } from '../cluster/follow-sandboxes.ts';
import { fromAgentError } from '../sandbox/agent-failure.ts';
import { startRequest } from '../sandbox/command.ts';
import { endOf } from '../sandbox/command-end.ts';

/** Relative to the home directory of the sandbox's user. */
const HISTORY_FILE = '.torpor-history.json';

export function agentTurnPort(connect: ConnectToAgent): TurnPort {
  return {
    async deliver(org, id, order, signal) {
      const agent = await connect(org, id);
      try {
        return await deliver(agent, order, signal);
      } catch (thrown) {
        throw deliverFailure(thrown, id);
      } finally {
        agent.close();
      }
    },

    async *listen(org, id, tag, from, signal) {
      const agent = await connect(org, id);
      try {
        yield* listen(agent, tag, from, signal);
      } catch (thrown) {
        throw listenFailure(thrown, id);
      } finally {
        agent.close();
      }
    },
  };
}

/** A long-running program gets a turn as a line of JSON. A program per turn gets the input as it is, the rest in variables. */
async function deliver(
  agent: AgentClient,
  order: TurnMessage,
  signal: AbortSignal,
): Promise<DeliveryReceipt> {
  const { id, sessionKey, program, input, agentThreadId, history } = order;
  const { command, cwd, env, mode } = program;
  const isService = mode === 'service';
  const envs: Record<string, string> = { ...env, TORPOR_SESSION: sessionKey };
  if (!isService) envs['TORPOR_TURN'] = id;
  if (!isService && agentThreadId !== null) envs['TORPOR_THREAD'] = agentThreadId;
  if (!isService && history !== null) {
    const { path } = await agent.files.write(HISTORY_FILE, JSON.stringify(history), { signal });
    envs['TORPOR_HISTORY'] = path;
  }
  const { process } = startRequest({ command, cwd, env: envs, tag: id });
  const message = { turn: id, input, thread: agentThreadId, ...(history === null ? {} : { history }) };
  return agent.deliverTurn(
    {
      id,
      keep: isService ? sessionKey : null,
      process,
      input: isService ? `${JSON.stringify(message)}\n` : input,
    },
    { signal },
  );
}

/** Positions count from the first byte, including bytes that the agent dropped. Bytes before `from` are left out. */
async function* listen(
  agent: AgentClient,
  tag: string,
  from: number,
  signal: AbortSignal,
): AsyncGenerator<ProgramOutput> {
  const process = { selector: { case: 'tag' as const, value: tag } };
  let position = 0;
  for await (const { event } of agent.process.connect({ process }, { signal })) {
    const received = event?.event;
    if (received?.case === 'start') position = Number(received.value.droppedBytes);
    if (received?.case === 'end') yield { is: 'end', ...endOf(received.value) };
    if (received?.case !== 'data') continue;
    const { case: channel, value: bytes } = received.value.output;
    if (channel !== 'stdout' && channel !== 'stderr') continue;
    const begins = position;
    position += bytes.length;
    if (position <= from) continue;
    const skipped = Math.max(0, from - begins);
    yield { is: 'output', channel, position: begins + skipped, bytes: bytes.subarray(skipped) };
  }
}

/** An agent of another provider does not support turns. */
function deliverFailure(thrown: unknown, sandboxId: SandboxId): TorporError {
  if (agentError(thrown).code !== 'not_found') return fromAgentError(thrown, sandboxId);
  const message = "This sandbox's agent does not support turns.";
  return new TorporError('capability_unsupported', message, { sandboxId });
}

/** `not_found` is the only final answer: the process does not exist. */
function listenFailure(thrown: unknown, sandboxId: SandboxId): TorporError {
  if (agentError(thrown).code === 'not_found') {
    return new TorporError('not_found', 'The process does not exist.', { sandboxId });
  }
  return fromAgentError(thrown, sandboxId);
}
