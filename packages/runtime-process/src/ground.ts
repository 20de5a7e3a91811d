/** What the parts of the runtime stand on, and the first questions they all ask of it. */
import { stat } from 'node:fs/promises';
import type { Clock, Instance } from '@torpor/engine';
import { type HostProcesses, isSameProcess } from '@torpor/host';
import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import type { AgentProgram } from './agent-process.ts';
import type { InstanceDirectory } from './instance-directory.ts';
import { type Belonging, processesOf } from './instance-processes.ts';
import { type AgentIdentity, type InstanceRecord, readInstanceRecord } from './instance-record.ts';
import type { Crowd } from './process-signals.ts';
import type { UserRange } from './sandbox-users.ts';

export interface Ground {
  readonly directory: InstanceDirectory;
  readonly host: HostProcesses;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  readonly program: AgentProgram;
  /** Descriptors that the server was started with; see `inheritedDescriptors`. */
  readonly inherited: readonly number[];
  /** Null when instances run as the server's own user. */
  readonly users: UserRange | null;
  /** Where the content of a sealed checkpoint lies, when that is known. */
  readonly sealedPath: ((id: CheckpointId) => string) | null;
}

type AgentState = 'running' | 'frozen' | 'gone';

interface LiveInstance {
  readonly record: InstanceRecord;
  readonly state: Exclude<AgentState, 'gone'>;
  readonly crowd: Crowd;
}

/** The agent is the first process of an instance and the last to go on: its state is the instance's. */
export async function agentState(
  { host }: Ground,
  agent: AgentIdentity | null | undefined,
): Promise<AgentState> {
  if (agent === null || agent === undefined || agent.bootId !== (await host.bootId())) return 'gone';
  const facts = await host.read(agent.pid);
  if (!isSameProcess(facts, agent) || facts?.state === 'dead') return 'gone';
  return facts?.state === 'stopped' ? 'frozen' : 'running';
}

export async function liveInstance(ground: Ground, instance: Instance): Promise<LiveInstance> {
  const record = await readInstanceRecord(ground.directory.paths(instance).record);
  const state = await agentState(ground, record?.agent);
  if (record === undefined || state === 'gone') {
    throw new TorporError(
      'unreachable',
      `Generation ${instance.generation} of ${instance.sandboxId} is not alive.`,
      {
        sandboxId: instance.sandboxId,
      },
    );
  }
  return { record, state, crowd: await crowdOf(ground, instance) };
}

/** The processes of one instance. */
export function crowdOf(ground: Ground, { sandboxId, generation }: Instance): Promise<Crowd> {
  return crowdWhere(ground, sandboxId, (one) => one === generation);
}

/** The processes of every instance of the sandbox up to a generation. */
export function crowdUpTo(ground: Ground, { sandboxId, generation }: Instance): Promise<Crowd> {
  return crowdWhere(ground, sandboxId, (one) => one <= generation);
}

async function crowdWhere(
  ground: Ground,
  sandboxId: SandboxId,
  isOurs: (generation: number) => boolean,
): Promise<Crowd> {
  const { directory, host, clock } = ground;
  const bootId = await host.bootId();
  const users: number[] = [];
  const agents: AgentIdentity[] = [];
  for (const generation of (await directory.generations(sandboxId)).filter(isOurs)) {
    const { record, user } = await lookUp(ground, { sandboxId, generation });
    if (user !== null) users.push(user);
    if (record?.agent?.bootId === bootId) agents.push(record.agent);
  }
  const belonging: Belonging = { sandboxId, isOurs, users, agents };
  return {
    find: () => processesOf(host, belonging),
    isThere: async (facts) => {
      const now = await host.read(facts.pid);
      return isSameProcess(now, facts) && now?.state !== 'dead';
    },
    users,
    clock,
  };
}

/** The user is also the group of its directory, should the record be damaged. */
async function lookUp(
  { directory, users }: Ground,
  instance: Instance,
): Promise<{ readonly record: InstanceRecord | undefined; readonly user: number | null }> {
  const paths = directory.paths(instance);
  const record = await readInstanceRecord(paths.record);
  if (record !== undefined || users === null) return { record, user: record?.user ?? null };
  const group = await stat(paths.directory).then(
    ({ gid }) => gid,
    () => 0,
  );
  const isOfRange = group >= users.first && group < users.first + users.count;
  return { record, user: isOfRange ? group : null };
}
