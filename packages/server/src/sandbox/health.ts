/** The health of a sandbox and its agent. The check neither wakes the sandbox nor counts as use. */
import type { SandboxHealth, SandboxId, SandboxView, TorporError } from '@torpor/protocol';
import { RequestDeadline } from '../http/request-deadline.ts';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from './agent-failure.ts';
import { connectToAgent, hasChangedSince } from './sandbox-connection.ts';

/** After this time an agent counts as silent. Its answer is empty. */
const AGENT_MS = 2_000;

export async function healthOf(ctx: RouteContext, org: string, id: SandboxId): Promise<SandboxHealth> {
  const { engine, clock } = ctx;
  const sandbox = await engine.get(org, id);
  if (sandbox.state !== 'running') return describe(sandbox, 'not_running', null, clock.now());
  try {
    await askAgent(ctx, org, id);
    return describe(sandbox, 'answers', null, clock.now());
  } catch (thrown) {
    const silent = describe(sandbox, 'silent', fromAgentError(thrown, id), clock.now());
    // A sandbox that was paused or killed meanwhile is not silent; its new state is returned.
    if (!(await hasChangedSince(engine, org, id, sandbox.generation))) return silent;
    const now = await engine.get(org, id);
    return now.state === 'running' ? silent : describe(now, 'not_running', null, clock.now());
  }
}

async function askAgent({ engine, clock }: RouteContext, org: string, id: SandboxId): Promise<void> {
  const deadline = new RequestDeadline(clock, AGENT_MS, 0);
  try {
    await deadline.run(async (signal) => {
      const agent = connectToAgent(await engine.agent(org, id));
      try {
        await agent.health({ signal });
      } finally {
        agent.close();
      }
    });
  } finally {
    deadline.release();
  }
}

function describe(
  { id, state, evidence, observedAt, generation, startedAt }: SandboxView,
  agent: SandboxHealth['agent'],
  error: TorporError | null,
  now: number,
): SandboxHealth {
  const runs = agent !== 'not_running' && startedAt !== null;
  return {
    sandboxId: id,
    state,
    evidence,
    observedAt,
    generation,
    agent,
    agentError: error === null ? null : error.toBody(),
    uptimeSeconds: runs ? Math.max(0, Math.floor((now - startedAt) / 1_000)) : null,
  };
}
