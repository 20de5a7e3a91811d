/** Work inside a sandbox: wakes it if it sleeps, holds it awake meanwhile, and speaks with its agent. */
import type { AgentAddress } from '@torpor/engine';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from './agent-failure.ts';

export interface SandboxConnection {
  readonly agent: AgentClient;
  /** Whether the sandbox slept and woke for this. */
  readonly autoResumed: boolean;
  readonly generation: number;
  /** Lets go of the sandbox and of the connection to its agent. */
  release(): void;
}

const RETRY_MS = 100;

/** The caller releases what it gets. `signal` ends the waiting. */
async function wakeAndConnect(
  ctx: RouteContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<SandboxConnection> {
  const { engine } = ctx;
  // From the beginning, so that the sandbox does not fall asleep between waking and working.
  const releaseLease = engine.leases.hold(id);
  try {
    const { address, autoResumed, generation } = await wakeAndFindAgent(ctx, org, id, signal);
    const agent = connectToAgent(address);
    return {
      agent,
      autoResumed,
      generation,
      release() {
        agent.close();
        releaseLease();
      },
    };
  } catch (thrown) {
    releaseLease();
    throw thrown;
  }
}

/** Looks again whenever the sandbox changed under us: while it goes to sleep, for example, nothing can be done. */
async function wakeAndFindAgent(
  { engine, clock }: RouteContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
) {
  let autoResumed = false;
  for (;;) {
    signal.throwIfAborted();
    const { state, autoResume, generation } = await engine.get(org, id);
    try {
      if (state === 'paused' && autoResume) {
        autoResumed = (await engine.resume({ org, signal }, id)).resumed || autoResumed;
        continue;
      }
      // For a sandbox that is not running this says why, in the engine's own words.
      return { address: await engine.agent(org, id), autoResumed, generation };
    } catch (thrown) {
      if (!(thrown instanceof TorporError)) throw thrown;
      if (state === 'paused' && !autoResume) throw withResumeHint(thrown);
      const changed = thrown.code === 'transitioning' || (thrown.code === 'conflict' && state === 'running');
      const gone = thrown.code === 'unreachable' && (await hasChangedSince(engine, org, id, generation));
      if (!changed && !gone) throw thrown;
    }
    await clock.sleep(RETRY_MS, signal);
  }
}

/** Whether the sandbox is no longer, or not for long, what it was in that generation. */
export async function hasChangedSince(
  engine: RouteContext['engine'],
  org: string,
  id: SandboxId,
  generation: number,
): Promise<boolean> {
  const now = await engine.get(org, id);
  return now.state !== 'running' || now.generation !== generation || now.operationId !== null;
}

function withResumeHint(error: TorporError): TorporError {
  return new TorporError(error.code, error.message, {
    ...error.toBody(),
    hint: 'It does not wake by itself (autoResume is off): resume it first.',
  });
}

export function connectToAgent({ address, token }: AgentAddress): AgentClient {
  const accessToken = token;
  return 'socketPath' in address
    ? connectAgent({ socketPath: address.socketPath, accessToken })
    : connectAgent({
        baseUrl: `http://${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`,
        accessToken,
      });
}

/** Within the time of the request; a sandbox that wakes later than that is let go of at once. */
export async function connectToSandbox(
  ctx: RouteContext,
  request: FastifyRequest,
  id: SandboxId,
): Promise<SandboxConnection> {
  request.logFields.sandboxId = id;
  const waking = wakeAndConnect(ctx, request.identity.org, id, request.deadline.signal);
  try {
    return await request.deadline.run(() => waking);
  } catch (thrown) {
    waking.then(
      ({ release }) => release(),
      () => {},
    );
    throw thrown;
  }
}

/** One piece of work with the agent of a sandbox within the time of the request, its failures told as ours. */
export async function withAgent<T>(
  ctx: RouteContext,
  request: FastifyRequest,
  id: SandboxId,
  work: (agent: AgentClient, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { agent, release } = await connectToSandbox(ctx, request, id);
  try {
    return await request.deadline.run((signal) => work(agent, signal));
  } catch (thrown) {
    throw fromAgentError(thrown, id);
  } finally {
    release();
  }
}
