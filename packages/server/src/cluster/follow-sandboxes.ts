/**
 * Sandboxes wherever they live, for work that goes on where it was accepted: the engine, whose calls are made on the node of
 * the sandbox, and the agents. A sandbox may move between two calls, and while a call is on its way.
 */
import type { Clock, Engine, Location } from '@torpor/engine';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { AGENT_PORT, type HopSigner, nodeIsAway } from '@torpor/gateway';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { connectToAgent } from '../sandbox/sandbox-connection.ts';
import { callEngine, type RemoteCall, type RemoteEngine } from './engine-calls.ts';

export interface FollowedSandboxes {
  readonly engine: Engine;
  /** Connects to the agent of a running sandbox. The caller holds a lease while it talks, and closes the client. */
  readonly connect: ConnectToAgent;
}

export type ConnectToAgent = (org: string, id: SandboxId) => Promise<AgentClient>;

export interface FollowParts {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Undefined for a server that is alone: then every sandbox is here. */
  readonly signer: HopSigner | undefined;
  /** Authenticates a client of an agent at the gateway of any node. */
  readonly accessToken: (id: SandboxId) => string;
}

/** For sandboxes of this node. */
export function connectThrough(engine: Pick<Engine, 'agent'>): ConnectToAgent {
  return async (org, id) => connectToAgent(await engine.agent(org, id));
}

/** How often a call is made when its sandbox has moved meanwhile, and how long after. */
const MAX_ATTEMPTS = 4;
const AGAIN_MS = 100;

export function followSandboxes({ engine, clock, signer, accessToken }: FollowParts): FollowedSandboxes {
  const { directory } = engine;
  const connectHere = connectThrough(engine);
  if (signer === undefined) return { engine, connect: connectHere };

  async function at<C extends RemoteCall>(
    id: SandboxId,
    call: C,
    ...args: Parameters<RemoteEngine[C]>
  ): Promise<Awaited<ReturnType<RemoteEngine[C]>>> {
    for (let attempt = 1; ; attempt++) {
      const location = await homeOf(id);
      const asked = location.is === 'here' ? directory.self : location.node;
      try {
        if (location.is === 'elsewhere') return await callEngine(signer as HopSigner, location, call, args);
        const run = engine[call] as (...args: unknown[]) => unknown;
        return (await run.call(engine, ...args)) as Awaited<ReturnType<RemoteEngine[C]>>;
      } catch (thrown) {
        if (attempt === MAX_ATTEMPTS || !hasMoved(thrown, asked)) throw thrown;
      }
      await clock.sleep(AGAIN_MS);
    }
  }
  async function homeOf(id: SandboxId): Promise<Exclude<Location, { is: 'unreachable' }>> {
    const location = await directory.locate(id);
    if (location.is === 'unreachable') throw nodeIsAway(id, location);
    return location;
  }

  const calls: RemoteEngine = {
    create: async (caller, request) => {
      try {
        const place = await engine.placeOf(caller.org, request);
        if (place.is === 'elsewhere') return await callEngine(signer, place, 'create', [caller, request]);
      } catch (thrown) {
        // An earlier request with the same key may have made the sandbox.
        if (!(thrown instanceof TorporError) || thrown.code !== 'capacity') throw thrown;
        return engine.create(caller, request).catch((own: unknown) => {
          throw own instanceof TorporError && own.code === 'capacity' ? thrown : own;
        });
      }
      return engine.create(caller, request);
    },
    resume: (caller, id, ...rest) => at(id, 'resume', caller, id, ...rest),
    pause: (caller, id, ...rest) => at(id, 'pause', caller, id, ...rest),
    fork: (caller, id, ...rest) => at(id, 'fork', caller, id, ...rest),
    snapshot: (caller, id, ...rest) => at(id, 'snapshot', caller, id, ...rest),
    kill: (caller, id, ...rest) => at(id, 'kill', caller, id, ...rest),
    get: (org, id) => at(id, 'get', org, id).catch((thrown: unknown) => unknownState(org, id, thrown)),
    compareOne: (org, id) => at(id, 'compareOne', org, id),
    dial: (org, id, port) => at(id, 'dial', org, id, port),
  };

  /** For a node that does not answer: the state in the database, with the evidence `unknown`. */
  async function unknownState(org: string, id: SandboxId, thrown: unknown) {
    if (!(thrown instanceof TorporError) || thrown.code !== 'unreachable') throw thrown;
    const view = await engine.get(org, id);
    return view.state === 'running' ? { ...view, evidence: 'unknown' as const } : view;
  }

  async function connect(org: string, id: SandboxId): Promise<AgentClient> {
    const location = await homeOf(id);
    if (location.is === 'here') return connectHere(org, id);
    // The engine has the reason why this one cannot be reached.
    if ((await engine.get(org, id)).state !== 'running') return connectHere(org, id);
    return connectAgent({
      baseUrl: location.address,
      headers: { 'torpor-sandbox': id, 'torpor-port': String(AGENT_PORT) },
      accessToken: accessToken(id),
    });
  }

  return { engine: withCalls(engine, calls), connect };
}

/** The same engine with other functions for some calls. Its class has private fields, so it cannot be derived from. */
function withCalls(engine: Engine, calls: RemoteEngine): Engine {
  return new Proxy(engine, {
    get(target, name) {
      const found: unknown = name in calls ? calls[name as RemoteCall] : Reflect.get(target, name, target);
      return typeof found === 'function' ? found.bind(target) : found;
    },
  });
}

/** The node that was asked says that another node has the sandbox. It has done nothing. */
function hasMoved(thrown: unknown, asked: string): boolean {
  if (!(thrown instanceof TorporError) || thrown.code !== 'unreachable') return false;
  const { details } = thrown.toBody();
  return typeof details?.['node'] === 'string' && details['node'] !== asked;
}
