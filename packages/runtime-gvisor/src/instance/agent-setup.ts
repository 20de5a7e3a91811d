/** Waiting for the agent of a guest, and telling it who it is. */
import type { Clock } from '@torpor/engine';
import { type AgentClient, connectAgent, type InitResponse, type ProcessInfo } from '@torpor/envd';
import type { Attachment } from '@torpor/network';
import { TorporError } from '@torpor/protocol';
import { AGENT_PORT } from '../container/container-setup.ts';
import { GUEST_HOME, GUEST_USER } from '../guest/layout.ts';

export interface AgentSetupOptions {
  readonly attachment: Pick<Attachment, 'guestAddress' | 'resolverAddress'>;
  /** With which the agent takes orders now. */
  readonly credential: string;
  /** What it asks of callers from here on, and of the server for the next order. */
  readonly token: string;
  readonly nextCredential: string;
  readonly sandboxId: string;
  readonly hostname: string;
  readonly env: Readonly<Record<string, string>>;
  /** And threads, of its people. As they are, when it is not said. */
  readonly processes?: number | undefined;
  /** Whether it came back with its memory, listening as it was. */
  readonly isRestored: boolean;
  /** Whether the sentry still lives: without it nobody will ever answer. */
  readonly isAlive: () => Promise<boolean>;
}

const FIRST_LOOK_MS = 4;
const LONGEST_LOOK_MS = 50;
/**
 * A knock on a door that is not there yet is answered by nobody, nor is one that came just while the sandbox was
 * brought back. On a busy machine an answer takes its time: each is waited for longer than the one before.
 */
const FIRST_KNOCK_MS = 1_000;
const LONGEST_KNOCK_MS = 15_000;

export function agentAt(guestAddress: string, accessToken: string): AgentClient {
  return connectAgent({ baseUrl: `http://${guestAddress}:${AGENT_PORT}`, accessToken });
}

export interface AgentSetup {
  /** The caller's to close. */
  readonly agent: AgentClient;
  /** The processes with a tag that came back with its memory; none, too, from an agent that does not say. */
  readonly tagged: readonly ProcessInfo[];
}

export async function setUpAgent(
  order: AgentSetupOptions,
  clock: Clock,
  signal: AbortSignal,
): Promise<AgentSetup> {
  const { attachment, hostname } = order;
  const { guestAddress, resolverAddress } = attachment;
  const agent = agentAt(guestAddress, order.token);
  const orders = {
    credential: order.nextCredential,
    accessToken: order.token,
    envs: { ...order.env },
    defaultUser: GUEST_USER,
    defaultWorkdir: GUEST_HOME,
    hostname,
    sandboxId: order.sandboxId,
    timestamp: clock.now(),
    resolvConf: `nameserver ${resolverAddress}\n`,
    hosts: `127.0.0.1 localhost\n${guestAddress} ${hostname}\n`,
    ...(order.processes === undefined ? {} : { maxProcesses: order.processes }),
  };
  const init = (credential: string, own = signal) => agent.init(orders, { signal: own, credential });
  const initWhenAnswering = async (): Promise<InitResponse> => {
    await untilAnswering(order, agent, clock, signal);
    return init(order.credential).catch((thrown: unknown) => {
      // It took the order of the first try, whose answer was lost.
      if (thrown instanceof TorporError && thrown.code === 'unauthenticated')
        return init(order.nextCredential);
      throw thrown;
    });
  };
  try {
    const first = AbortSignal.any([signal, AbortSignal.timeout(FIRST_KNOCK_MS)]);
    const early = order.isRestored ? await init(order.credential, first).catch(() => undefined) : undefined;
    const { tagged } = early ?? (await initWhenAnswering());
    return { agent, tagged };
  } catch (thrown) {
    agent.close();
    throw thrown;
  }
}

async function untilAnswering(
  { isAlive }: AgentSetupOptions,
  agent: AgentClient,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  let patience = FIRST_KNOCK_MS;
  for (let pause = FIRST_LOOK_MS; ; pause = Math.min(2 * pause, LONGEST_LOOK_MS)) {
    signal.throwIfAborted();
    const began = clock.monotonic();
    const knock = AbortSignal.any([signal, AbortSignal.timeout(patience)]);
    if (await agent.health({ signal: knock }).then(isTrue, isFalse)) return;
    if (clock.monotonic() - began >= patience) patience = Math.min(2 * patience, LONGEST_KNOCK_MS);
    if (!(await isAlive())) {
      throw new TorporError('internal', 'The sandbox ended before its agent was ready.');
    }
    await clock.sleep(pause, signal);
  }
}

const isTrue = () => true;
const isFalse = () => false;
