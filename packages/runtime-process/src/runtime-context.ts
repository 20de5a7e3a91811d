/** What every part of the process runtime works with, and the lookups that all of them need. */
import { stat } from 'node:fs/promises';
import type { Clock, Instance } from '@torpor/engine';
import { type HostProcesses, isSameProcess } from '@torpor/host';
import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import type { AgentProgram } from './instance/agent-setup.ts';
import type { InstanceDirectory } from './instance/instance-directory.ts';
import { type AgentIdentity, type InstanceRecord, readInstanceRecord } from './instance/instance-record.ts';
import { findProcesses, type Membership } from './processes/instance-processes.ts';
import type { InstanceProcesses } from './processes/process-signals.ts';
import type { UserRange } from './processes/sandbox-users.ts';

export interface RuntimeContext {
  readonly directory: InstanceDirectory;
  readonly host: HostProcesses;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  readonly program: AgentProgram;
  /** Descriptors that the server inherited; see `inheritedDescriptors`. */
  readonly inherited: readonly number[];
  /** Null when instances run as the server's own user. */
  readonly users: UserRange | null;
  /** The path of the content of a sealed checkpoint. Null when the store does not tell. */
  readonly sealedPath: ((id: CheckpointId) => string) | null;
}

type AgentState = 'running' | 'frozen' | 'gone';

interface LiveInstance {
  readonly record: InstanceRecord;
  readonly state: Exclude<AgentState, 'gone'>;
  readonly processes: InstanceProcesses;
}

/** The agent is the first process of an instance to be stopped and the last to be continued, so its state is the instance's. */
export async function agentState(
  { host }: RuntimeContext,
  agent: AgentIdentity | null | undefined,
): Promise<AgentState> {
  if (agent === null || agent === undefined || agent.bootId !== (await host.bootId())) return 'gone';
  const facts = await host.read(agent.pid);
  if (!isSameProcess(facts, agent) || facts?.state === 'dead') return 'gone';
  return facts?.state === 'stopped' ? 'frozen' : 'running';
}

/** Throws `unreachable` when the agent of the instance is not running. */
export async function liveInstance(ctx: RuntimeContext, instance: Instance): Promise<LiveInstance> {
  const record = await readInstanceRecord(ctx.directory.paths(instance).record);
  const state = await agentState(ctx, record?.agent);
  if (record === undefined || state === 'gone') {
    throw new TorporError(
      'unreachable',
      `Generation ${instance.generation} of ${instance.sandboxId} is not alive.`,
      {
        sandboxId: instance.sandboxId,
      },
    );
  }
  return { record, state, processes: await processesOf(ctx, instance) };
}

/** The processes of one instance. */
export function processesOf(
  ctx: RuntimeContext,
  { sandboxId, generation }: Instance,
): Promise<InstanceProcesses> {
  return processesWhere(ctx, sandboxId, (one) => one === generation);
}

/** The processes of every instance of the sandbox up to a generation. */
export function processesUpTo(
  ctx: RuntimeContext,
  { sandboxId, generation }: Instance,
): Promise<InstanceProcesses> {
  return processesWhere(ctx, sandboxId, (one) => one <= generation);
}

async function processesWhere(
  ctx: RuntimeContext,
  sandboxId: SandboxId,
  includesGeneration: (generation: number) => boolean,
): Promise<InstanceProcesses> {
  const { directory, host, clock } = ctx;
  const bootId = await host.bootId();
  const users: number[] = [];
  const agents: AgentIdentity[] = [];
  for (const generation of (await directory.generations(sandboxId)).filter(includesGeneration)) {
    const { record, user } = await readRecordAndUser(ctx, { sandboxId, generation });
    if (user !== null) users.push(user);
    if (record?.agent?.bootId === bootId) agents.push(record.agent);
  }
  const membership: Membership = { sandboxId, includesGeneration, users, agents };
  return {
    find: () => findProcesses(host, membership),
    exists: async (facts) => {
      const now = await host.read(facts.pid);
      return isSameProcess(now, facts) && now?.state !== 'dead';
    },
    users,
    clock,
  };
}

/** The user of an instance is also the group of its directory, which is used when the record is damaged. */
async function readRecordAndUser(
  { directory, users }: RuntimeContext,
  instance: Instance,
): Promise<{ readonly record: InstanceRecord | undefined; readonly user: number | null }> {
  const paths = directory.paths(instance);
  const record = await readInstanceRecord(paths.record);
  if (record !== undefined || users === null) return { record, user: record?.user ?? null };
  const group = await stat(paths.directory).then(
    ({ gid }) => gid,
    () => 0,
  );
  const isInRange = group >= users.first && group < users.first + users.count;
  return { record, user: isInRange ? group : null };
}
