/** A connection to the agent of a sandbox. It wakes the sandbox and keeps it awake until it is released. */
import type { AgentAddress, Caller } from '@torpor/engine';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { actorIn } from '../http/caller.ts';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from './agent-failure.ts';

export interface SandboxConnection {
  readonly agent: AgentClient;
  /** Whether the sandbox was paused and was woken for this connection. */
  readonly autoResumed: boolean;
  readonly generation: number;
  /** Closes the connection and lets the sandbox sleep again. */
  release(): void;
}

export interface ConnectOptions {
  /** Whether a paused sandbox is woken; otherwise it is a `conflict`. */
  readonly wake?: boolean;
}

const RETRY_MS = 100;

type WakingCaller = Pick<Caller, 'org' | 'by' | 'span'> & { readonly signal: AbortSignal };

/** The caller must release the connection. Its signal ends the waiting. */
async function wakeAndConnect(
  ctx: RouteContext,
  caller: WakingCaller,
  id: SandboxId,
  { wake = true }: ConnectOptions,
): Promise<SandboxConnection> {
  const { engine } = ctx;
  // The lease is taken first, so that the sandbox is not paused between its wake and the connection.
  const releaseLease = engine.leases.hold(id);
  try {
    const { address, autoResumed, generation } = await wakeAndFindAgent(ctx, caller, id, wake);
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

/** Tries again whenever the sandbox has changed meanwhile, for example while it is being paused. */
async function wakeAndFindAgent(
  { engine, clock }: RouteContext,
  caller: WakingCaller,
  id: SandboxId,
  wake: boolean,
) {
  const { org, signal } = caller;
  let autoResumed = false;
  for (;;) {
    signal.throwIfAborted();
    const { state, autoResume, generation } = await engine.get(org, id);
    try {
      if (state === 'paused' && autoResume && wake) {
        autoResumed = (await engine.resume(caller, id)).resumed || autoResumed;
        continue;
      }
      // For a sandbox that is not running, the engine throws the reason.
      return { address: await engine.agent(org, id), autoResumed, generation };
    } catch (thrown) {
      if (!(thrown instanceof TorporError)) throw thrown;
      if (state === 'paused' && !(autoResume && wake)) throw withResumeHint(thrown, wake);
      const changed = thrown.code === 'transitioning' || (thrown.code === 'conflict' && state === 'running');
      const gone = thrown.code === 'unreachable' && (await hasChangedSince(engine, org, id, generation));
      if (!changed && !gone) throw thrown;
    }
    await clock.sleep(RETRY_MS, signal);
  }
}

/** Whether the sandbox has left that generation, or an operation is about to change it. */
export async function hasChangedSince(
  engine: RouteContext['engine'],
  org: string,
  id: SandboxId,
  generation: number,
): Promise<boolean> {
  const now = await engine.get(org, id);
  return now.state !== 'running' || now.generation !== generation || now.operationId !== null;
}

function withResumeHint(error: TorporError, wake: boolean): TorporError {
  return new TorporError(error.code, error.message, {
    ...error.toBody(),
    hint: `Resume it first. It does not wake by itself, because ${wake ? 'autoResume is off' : 'wake=false was given'}.`,
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

/** Connects within the deadline of the request. A connection that comes later is released at once. */
export async function connectToSandbox(
  ctx: RouteContext,
  request: FastifyRequest,
  id: SandboxId,
  options: ConnectOptions = {},
): Promise<SandboxConnection> {
  request.logFields.sandboxId = id;
  const caller = {
    org: request.identity.org,
    by: actorIn(request),
    signal: request.deadline.signal,
    span: request.span,
  };
  const waking = wakeAndConnect(ctx, caller, id, options);
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

/** Runs `work` with the agent of a sandbox within the deadline of the request, and converts the agent's errors. */
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
