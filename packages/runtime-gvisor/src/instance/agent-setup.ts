/** Waits until the agent of a guest answers, and configures it: credentials, environment, host name, limits. */
import type { Clock } from '@torpor/engine';
import { type AgentClient, connectAgent, type InitResponse, type ProcessInfo } from '@torpor/envd';
import type { Attachment } from '@torpor/network';
import { TorporError } from '@torpor/protocol';
import { AGENT_PORT } from '../container/container-setup.ts';
import { GUEST_HOME, GUEST_USER } from '../guest/layout.ts';

export interface AgentSetupOptions {
  readonly attachment: Pick<Attachment, 'guestAddress' | 'resolverAddress'>;
  /** The credential that the agent accepts now. */
  readonly credential: string;
  /** Callers of the agent must send this token from now on. */
  readonly token: string;
  /** The server must send this credential with its next `/init`. */
  readonly nextCredential: string;
  readonly sandboxId: string;
  readonly hostname: string;
  readonly env: Readonly<Record<string, string>>;
  /** The user and directory of commands that name none. Undefined: those of every guest. */
  readonly user?: string | undefined;
  readonly workdir?: string | undefined;
  /** Limits the number of processes and threads of the guest's users. Undefined keeps the current limit. */
  readonly processes?: number | undefined;
  /** The number of processors that programs see. */
  readonly processors: number;
  /**
   * Whether the agent has its memory and listens already. `goes on`: the container was frozen only, so names, limits and
   * processors of its machine are as they were.
   */
  readonly memory: 'none' | 'restored' | 'goes on';
  /** A client for the token that is connected or connecting; closed when the setup fails. Absent: the setup makes one. */
  readonly agent?: AgentClient | undefined;
  /** Whether the sentry still lives: without it the agent never answers. */
  readonly isAlive: () => Promise<boolean>;
}

const FIRST_DELAY_MS = 4;
const MAX_DELAY_MS = 50;
/**
 * A call gets no answer while the agent does not listen yet, nor when it arrives while the sandbox is being restored.
 * On a busy host an answer takes long, so each call waits longer than the one before.
 */
const FIRST_TIMEOUT_MS = 1_000;
const MAX_TIMEOUT_MS = 15_000;

export function agentAt(guestAddress: string, accessToken: string): AgentClient {
  return connectAgent({ baseUrl: `http://${guestAddress}:${AGENT_PORT}`, accessToken });
}

/** More than an agent needs on a busy host. */
const ANSWER_MS = 10_000;

/** Whether the agent answers. A frozen sandbox accepts connections, but none of its programs answers. */
export async function agentAnswers(
  { guestAddress, token }: { readonly guestAddress: string; readonly token: string },
  clock: Clock,
  signal: AbortSignal,
): Promise<boolean> {
  const agent = agentAt(guestAddress, token);
  const over = new AbortController();
  const timeout = clock.sleep(ANSWER_MS, AbortSignal.any([signal, over.signal])).then(isFalse, isFalse);
  try {
    return await Promise.race([agent.health().then(isTrue, isFalse), timeout]);
  } finally {
    over.abort();
    // Resets the connection. An aborted call would only close it, and a sandbox whose memory is written must have none.
    agent.close();
    signal.throwIfAborted();
  }
}

export interface AgentSetup {
  /** The caller closes it. */
  readonly agent: AgentClient;
  /** The tagged processes that were restored. Also empty when the agent does not report them. */
  readonly tagged: readonly ProcessInfo[];
  /** The processes of services that had ended by themselves with exit code 0 in the restored memory. */
  readonly succeeded: readonly ProcessInfo[];
}

export async function setUpAgent(
  options: AgentSetupOptions,
  clock: Clock,
  signal: AbortSignal,
): Promise<AgentSetup> {
  const { attachment, hostname } = options;
  const { guestAddress, resolverAddress } = attachment;
  const agent = options.agent ?? agentAt(guestAddress, options.token);
  const machine = {
    hostname,
    resolvConf: `nameserver ${resolverAddress}\n`,
    hosts: `127.0.0.1 localhost\n${guestAddress} ${hostname}\n`,
    processors: options.processors,
    ...(options.processes === undefined ? {} : { maxProcesses: options.processes }),
  };
  const configuration = {
    credential: options.nextCredential,
    accessToken: options.token,
    envs: { ...options.env },
    defaultUser: options.user ?? GUEST_USER,
    defaultWorkdir: options.workdir ?? GUEST_HOME,
    sandboxId: options.sandboxId,
    timestamp: clock.now(),
    ...(options.memory === 'goes on' ? {} : machine),
  };
  const init = (credential: string, initSignal = signal) =>
    agent.init(configuration, { signal: initSignal, credential });
  const initWhenAnswering = async (): Promise<InitResponse> => {
    await untilAnswering(options, agent, clock, signal);
    return init(options.credential).catch((thrown: unknown) => {
      // The agent applied the first call, and its answer was lost.
      if (thrown instanceof TorporError && thrown.code === 'unauthenticated')
        return init(options.nextCredential);
      throw thrown;
    });
  };
  try {
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(FIRST_TIMEOUT_MS)]);
    const early =
      options.memory !== 'none' ? await init(options.credential, bounded).catch(() => undefined) : undefined;
    const { tagged, succeeded } = early ?? (await initWhenAnswering());
    return { agent, tagged, succeeded };
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
  let timeout = FIRST_TIMEOUT_MS;
  for (let pause = FIRST_DELAY_MS; ; pause = Math.min(2 * pause, MAX_DELAY_MS)) {
    signal.throwIfAborted();
    const began = clock.monotonic();
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(timeout)]);
    if (await agent.health({ signal: bounded }).then(isTrue, isFalse)) return;
    if (clock.monotonic() - began >= timeout) timeout = Math.min(2 * timeout, MAX_TIMEOUT_MS);
    if (!(await isAlive())) {
      throw new TorporError('internal', 'The sandbox ended before its agent was ready.');
    }
    await clock.sleep(pause, signal);
  }
}

const isTrue = () => true;
const isFalse = () => false;
