/** Sets up the agent of a pod: waits until it answers, tells it what it is, and starts the declared services. */
import type { Address, Clock, Instance } from '@torpor/engine';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { bareSandboxId, TorporError } from '@torpor/protocol';
import { declaredPort, type RuntimeSettings, startServices } from '@torpor/runtime-shared';
import { nextLookMs } from './next-look.ts';
import { HOME, USER } from './pod-spec.ts';
import type { StartSecret } from './start-secret.ts';

export interface AgentOrder {
  readonly instance: Instance;
  readonly secret: StartSecret;
  /** With which the agent was started. From its set-up on, its credential is that of the secret. */
  readonly credential: string;
  /** The address of the agent. */
  readonly address: Address;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  /** Throws when the pod has ended or cannot start, so that nobody waits for its agent. */
  check(): Promise<void>;
  dial(port: number): Promise<Address | null>;
}

const CHECK_EVERY_MS = 1_000;
const HEALTH_MS = 2_000;

export function agentClient(address: Address, token: string): AgentClient {
  return 'socketPath' in address
    ? connectAgent({ socketPath: address.socketPath, accessToken: token })
    : connectAgent({ baseUrl: `http://${hostOf(address.host)}:${address.port}`, accessToken: token });
}

function hostOf(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

export async function setUpAgent(order: AgentOrder, signal: AbortSignal): Promise<void> {
  const { address, secret, credential, instance, clock, settings } = order;
  const agent = agentClient(address, secret.token);
  try {
    await waitForAgent(agent, order, signal);
    const { env, services, user, workdir } = secret.spec;
    await agent.init(
      {
        credential: secret.token,
        accessToken: secret.token,
        envs: { ...env },
        defaultUser: user ?? USER,
        defaultWorkdir: workdir ?? HOME,
        hostname: bareSandboxId(instance.sandboxId),
        sandboxId: instance.sandboxId,
        timestamp: clock.now(),
      },
      { signal, credential },
    );
    const ctx = { agent, clock, settings, portFor: declaredPort, dial: order.dial };
    await startServices(ctx, services, signal);
  } finally {
    agent.close();
  }
}

async function waitForAgent(agent: AgentClient, order: AgentOrder, signal: AbortSignal): Promise<void> {
  const { clock } = order;
  const began = clock.monotonic();
  let checkedAt = began;
  for (;;) {
    signal.throwIfAborted();
    const answered = await agent
      .health({ signal: AbortSignal.any([signal, AbortSignal.timeout(HEALTH_MS)]) })
      .then(
        () => true,
        () => false,
      );
    if (answered) return;
    if (clock.monotonic() - checkedAt > CHECK_EVERY_MS) {
      await order.check();
      checkedAt = clock.monotonic();
    }
    await clock.sleep(nextLookMs(clock.monotonic() - began), signal);
  }
}

export function notAlive({ sandboxId, generation }: Instance, why: string): TorporError {
  return new TorporError('unreachable', `Generation ${generation} of ${sandboxId} is not alive: ${why}.`, {
    sandboxId,
  });
}
