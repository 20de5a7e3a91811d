/** The inside of a sandbox for its session: turns and answers go through the agent. */
import type { Engine } from '@torpor/engine';
import { type AgentClient, agentError } from '@torpor/envd';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { DeliveryReceipt, ProgramOutput, TurnMessage, TurnPort } from '@torpor/sessions';
import { fromAgent } from '../sandbox/agent-failure.ts';
import { connect } from '../sandbox/awake.ts';
import { startRequest } from '../sandbox/command.ts';
import { endOf } from '../sandbox/command-end.ts';

/** Relative to the home of the sandbox's user. */
const HISTORY_FILE = '.torpor-history.json';

export function agentInside(engine: Pick<Engine, 'agent'>): TurnPort {
  return {
    async deliver(org, id, order, signal) {
      const agent = connect(await engine.agent(org, id));
      try {
        return await deliver(agent, order, signal);
      } catch (thrown) {
        throw deliverFailure(thrown, id);
      } finally {
        agent.close();
      }
    },

    async *listen(org, id, tag, from, signal) {
      const agent = connect(await engine.agent(org, id));
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

/** A program that stays is told in a line of JSON; one of the turn's own has the input as it is, and the rest beside it. */
async function deliver(
  agent: AgentClient,
  order: TurnMessage,
  signal: AbortSignal,
): Promise<DeliveryReceipt> {
  const { id, sessionKey, program, input, agentThreadId, history } = order;
  const { command, cwd, env, mode } = program;
  const stays = mode === 'service';
  const envs: Record<string, string> = { ...env, TORPOR_SESSION: sessionKey };
  if (!stays) envs['TORPOR_TURN'] = id;
  if (!stays && agentThreadId !== null) envs['TORPOR_THREAD'] = agentThreadId;
  if (!stays && history !== null) {
    const { path } = await agent.files.write(HISTORY_FILE, JSON.stringify(history), { signal });
    envs['TORPOR_HISTORY'] = path;
  }
  const { process } = startRequest({ command, cwd, env: envs, tag: id });
  const told = { turn: id, input, thread: agentThreadId, ...(history === null ? {} : { history }) };
  return agent.deliverTurn(
    { id, keep: stays ? sessionKey : null, process, input: stays ? `${JSON.stringify(told)}\n` : input },
    { signal },
  );
}

/** Where the first bytes stand is said by how many came before them; those that are stored already are left out. */
async function* listen(
  agent: AgentClient,
  tag: string,
  from: number,
  signal: AbortSignal,
): AsyncGenerator<ProgramOutput> {
  const process = { selector: { case: 'tag' as const, value: tag } };
  let position = 0;
  for await (const { event } of agent.process.connect({ process }, { signal })) {
    const happened = event?.event;
    if (happened?.case === 'start') position = Number(happened.value.droppedBytes);
    if (happened?.case === 'end') yield { is: 'end', ...endOf(happened.value) };
    if (happened?.case !== 'data') continue;
    const { case: channel, value: bytes } = happened.value.output;
    if (channel !== 'stdout' && channel !== 'stderr') continue;
    const begins = position;
    position += bytes.length;
    if (position <= from) continue;
    const skipped = Math.max(0, from - begins);
    yield { is: 'output', channel, position: begins + skipped, bytes: bytes.subarray(skipped) };
  }
}

/** An agent that is not ours does not know what a turn is. */
function deliverFailure(thrown: unknown, sandboxId: SandboxId): TorporError {
  if (agentError(thrown).code !== 'not_found') return fromAgent(thrown, sandboxId);
  const message = 'The agent of this sandbox keeps no record of turns, so none can be delivered once.';
  return new TorporError('capability_unsupported', message, { sandboxId });
}

/** That the process is gone is the only thing that an agent can say for good here. */
function listenFailure(thrown: unknown, sandboxId: SandboxId): TorporError {
  if (agentError(thrown).code === 'not_found') {
    return new TorporError('not_found', 'There is no such process.', { sandboxId });
  }
  return fromAgent(thrown, sandboxId);
}
