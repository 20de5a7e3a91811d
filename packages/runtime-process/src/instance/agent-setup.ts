/** Starts the agent of an instance as a process that outlives the server. */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import type { Clock, Instance } from '@torpor/engine';
import { type AgentClient, connectAgent, SANDBOX_VARIABLE } from '@torpor/envd';
import type { HostProcesses } from '@torpor/host';
import { bareSandboxId, TorporError } from '@torpor/protocol';
import { INSTANCE_VARIABLE } from '../processes/instance-processes.ts';
import type { InstancePaths } from './instance-directory.ts';
import type { AgentIdentity } from './instance-record.ts';

/** Paths of Node and of the agent's script. */
export interface AgentProgram {
  readonly node: string;
  readonly script: string;
}

export interface AgentOrder {
  readonly program: AgentProgram;
  readonly instance: Instance;
  readonly paths: InstancePaths;
  readonly user: number | null;
  /** Descriptors that the agent inherits from the server by accident and closes. */
  readonly inherited: readonly number[];
}

/** The only variables of the server's environment that the agent gets: the others may contain keys. */
const INHERITED_VARIABLES = ['PATH', 'LANG', 'LC_ALL', 'TZ'] as const;

const TAIL_BYTES = 2_000;
const LOOK_EVERY_MS = 15;

function instanceName({ sandboxId, generation }: Instance): string {
  return `${sandboxId}/${generation}`;
}

/** Resolves when the process exists, long before the agent answers. */
export async function spawnAgent(
  order: AgentOrder,
  host: HostProcesses,
): Promise<{ readonly child: ChildProcess; readonly identity: AgentIdentity }> {
  const { program, instance, paths, user } = order;
  const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW } = constants;
  const log = await open(paths.log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0o600);
  try {
    const child = spawn(program.node, agentArguments(order), {
      cwd: paths.home,
      env: agentEnvironment(instance, paths),
      stdio: ['ignore', log.fd, log.fd],
      // In a session of its own, so that the agent does not end with the server or its terminal.
      detached: true,
      ...(user === null ? {} : { uid: user, gid: user }),
    });
    const failed = new Promise<never>((_, reject) => child.once('error', reject));
    const spawned = new Promise<void>((resolve) => child.once('spawn', () => resolve()));
    await Promise.race([spawned, failed]).catch((cause: unknown) => {
      throw new TorporError('internal', `The agent cannot be started with ${program.node}.`, { cause });
    });
    child.unref();
    return { child, identity: await identify(child.pid ?? 0, host, paths) };
  } finally {
    await log.close();
  }
}

function agentArguments({ program, instance, paths, inherited }: AgentOrder): string[] {
  return [
    program.script,
    ...['--listen', `unix:${paths.socket}`, '--root', paths.home, '--sandbox-id', instance.sandboxId],
    ...(inherited.length === 0 ? [] : ['--close', inherited.join(',')]),
  ];
}

async function identify(pid: number, host: HostProcesses, paths: InstancePaths): Promise<AgentIdentity> {
  const facts = await host.read(pid);
  if (facts === undefined) throw await agentEnded(paths);
  return { pid, startedAt: facts.startedAt, bootId: await host.bootId() };
}

function agentEnvironment(instance: Instance, { home }: InstancePaths): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {
    HOME: home,
    [SANDBOX_VARIABLE]: instance.sandboxId,
    [INSTANCE_VARIABLE]: instanceName(instance),
  };
  for (const name of INHERITED_VARIABLES) if (process.env[name] !== undefined) env[name] = process.env[name];
  return env;
}

/** Waits until the agent answers, and sends it its configuration. */
export async function setUpAgent(
  order: Pick<AgentOrder, 'instance' | 'paths'> & {
    readonly token: string;
    readonly env: Readonly<Record<string, string>>;
  },
  child: ChildProcess,
  clock: Clock,
  signal: AbortSignal,
): Promise<AgentClient> {
  const { instance, paths, token, env } = order;
  const client = connectAgent({ socketPath: paths.socket, accessToken: token });
  try {
    await waitUntilAnswering(client, child, paths, clock, signal);
    await client.init(
      {
        credential: token,
        accessToken: token,
        envs: { ...env, [INSTANCE_VARIABLE]: instanceName(instance) },
        // The instance has only one user. Clients of the agent's protocol call this user by this name.
        defaultUser: 'user',
        defaultWorkdir: paths.home,
        hostname: bareSandboxId(instance.sandboxId),
        sandboxId: instance.sandboxId,
        timestamp: clock.now(),
      },
      { signal },
    );
    return client;
  } catch (thrown) {
    client.close();
    throw thrown;
  }
}

async function waitUntilAnswering(
  client: AgentClient,
  child: ChildProcess,
  paths: InstancePaths,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    signal.throwIfAborted();
    if (child.exitCode !== null || child.signalCode !== null) throw await agentEnded(paths);
    const answered = await client.health({ signal }).then(
      () => true,
      () => false,
    );
    if (answered) return;
    await clock.sleep(LOOK_EVERY_MS, signal);
  }
}

async function agentEnded({ log }: InstancePaths): Promise<TorporError> {
  const output = (await readFile(log, 'utf8').catch(() => '')).slice(-TAIL_BYTES);
  return new TorporError('internal', 'The agent of the sandbox ended before it was ready.', {
    details: { output },
  });
}
