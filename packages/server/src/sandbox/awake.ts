/** Work inside a sandbox: wakes it if it sleeps, holds it awake meanwhile, and speaks with its agent. */
import type { AgentAddress, Engine } from '@torpor/engine';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { type SandboxId, TorporError } from '@torpor/protocol';
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
export async function awake(parts: RouteParts, org: string, id: SandboxId, signal: AbortSignal): Promise<Awake> {
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
    try {
      const { state, autoResume, generation } = await engine.get(org, id);
      if (state === 'running') return { address: await engine.agent(org, id), autoResumed, generation };
      if (state === 'paused' && autoResume) {
        const { resumed } = await resume(engine, org, id, signal);
        autoResumed ||= resumed;
        continue;
      }
      // Says what is the matter with it, in the engine's own words.
      await engine.agent(org, id);
    } catch (thrown) {
      if (!(thrown instanceof TorporError && mayPass(thrown))) throw thrown;
      if ((await engine.get(org, id)).state === 'paused' && thrown.code === 'conflict') throw asleep(thrown);
    }
    await clock.sleep(LOOK_AGAIN_MS, signal);
  }
}

/** Something else is under way, or the state has changed since it was looked at. */
function mayPass(error: TorporError): boolean {
  return error.code === 'transitioning' || error.code === 'conflict';
}

function asleep(error: TorporError): TorporError {
  return error.with({ hint: 'It does not wake by itself (autoResume is off): resume it first.' });
}

function resume(engine: Engine, org: string, id: SandboxId, signal: AbortSignal) {
  return engine.resume({ org, signal }, id, {});
}

function connect({ address, token }: AgentAddress): AgentClient {
  const accessToken = token;
  return 'socketPath' in address
    ? connectAgent({ socketPath: address.socketPath, accessToken })
    : connectAgent({ baseUrl: `http://${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`, accessToken });
}

/** One piece of work with the agent of a sandbox, its failures told as ours. */
export async function withAgent<T>(
  parts: RouteParts,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
  work: (agent: AgentClient) => Promise<T>,
): Promise<T> {
  const { agent, release } = await awake(parts, org, id, signal);
  try {
    return await work(agent);
  } catch (thrown) {
    throw fromAgent(thrown, id);
  } finally {
    release();
  }
}
