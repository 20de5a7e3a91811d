/** Work inside a sandbox: wakes it if it sleeps, holds it awake meanwhile, and speaks with its agent. */
import type { AgentAddress } from '@torpor/engine';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteParts } from '../parts.ts';
import { fromAgent } from './agent-failure.ts';

export interface Awake {
  readonly agent: AgentClient;
  /** Whether the sandbox slept and woke for this. */
  readonly autoResumed: boolean;
  readonly generation: number;
  /** Lets go of the sandbox and of the connection to its agent. */
  release(): void;
}

const LOOK_AGAIN_MS = 100;

/** The caller releases what it gets. `signal` ends the waiting. */
async function awake(parts: RouteParts, org: string, id: SandboxId, signal: AbortSignal): Promise<Awake> {
  const { engine } = parts;
  // From the beginning, so that the sandbox does not fall asleep between waking and working.
  const letGo = engine.leases.hold(id);
  try {
    const { address, autoResumed, generation } = await reach(parts, org, id, signal);
    const agent = connect(address);
    return {
      agent,
      autoResumed,
      generation,
      release() {
        agent.close();
        letGo();
      },
    };
  } catch (thrown) {
    letGo();
    throw thrown;
  }
}

/** Looks again whenever the sandbox changed under us: while it goes to sleep, for example, nothing can be done. */
async function reach({ engine, clock }: RouteParts, org: string, id: SandboxId, signal: AbortSignal) {
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
      if (state === 'paused' && !autoResume) throw asleep(thrown);
      const changed = thrown.code === 'transitioning' || (thrown.code === 'conflict' && state === 'running');
      const gone = thrown.code === 'unreachable' && (await hasMovedOn(engine, org, id, generation));
      if (!changed && !gone) throw thrown;
    }
    await clock.sleep(LOOK_AGAIN_MS, signal);
  }
}

/** Whether the sandbox is no longer, or not for long, what it was in that generation. */
export async function hasMovedOn(
  engine: RouteParts['engine'],
  org: string,
  id: SandboxId,
  generation: number,
): Promise<boolean> {
  const now = await engine.get(org, id);
  return now.state !== 'running' || now.generation !== generation || now.operationId !== null;
}

function asleep(error: TorporError): TorporError {
  return new TorporError(error.code, error.message, {
    ...error.toBody(),
    hint: 'It does not wake by itself (autoResume is off): resume it first.',
  });
}

export function connect({ address, token }: AgentAddress): AgentClient {
  const accessToken = token;
  return 'socketPath' in address
    ? connectAgent({ socketPath: address.socketPath, accessToken })
    : connectAgent({
        baseUrl: `http://${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`,
        accessToken,
      });
}

/** Within the time of the request; a sandbox that wakes later than that is let go of at once. */
export async function awakeFor(parts: RouteParts, request: FastifyRequest, id: SandboxId): Promise<Awake> {
  request.facts.sandboxId = id;
  const waking = awake(parts, request.identity.org, id, request.bound.signal);
  try {
    return await request.bound.run(() => waking);
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
  parts: RouteParts,
  request: FastifyRequest,
  id: SandboxId,
  work: (agent: AgentClient, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { agent, release } = await awakeFor(parts, request, id);
  try {
    return await request.bound.run((signal) => work(agent, signal));
  } catch (thrown) {
    throw fromAgent(thrown, id);
  } finally {
    release();
  }
}
