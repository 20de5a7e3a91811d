/**
 * Finds the processes of an instance. The parent process is not enough, because a daemon leaves its parent on purpose. A
 * process belongs to the instance when its environment names the instance or when it runs as the instance's user. All
 * its children and all processes of its session belong too.
 */
import { SANDBOX_VARIABLE } from '@torpor/envd';
import { forEachBounded, type HostProcesses, isSameProcess, type ProcessFacts } from '@torpor/host';
import type { SandboxId } from '@torpor/protocol';

/** The environment variable that names the instance (`<sandbox>/<generation>`) in each of its processes. */
export const INSTANCE_VARIABLE = 'TORPOR_INSTANCE';

export interface Membership {
  readonly sandboxId: SandboxId;
  /** Whether an instance of the sandbox with this generation is meant. */
  includesGeneration(generation: number): boolean;
  /** User ids of which only these instances have processes. */
  readonly users: readonly number[];
  /** The agents that this runtime started for these instances. */
  readonly agents: readonly Pick<ProcessFacts, 'pid' | 'startedAt'>[];
}

const READS_AT_ONCE = 32;

/** All living processes of the instances, parents before their children. */
export async function findProcesses(host: HostProcesses, membership: Membership): Promise<ProcessFacts[]> {
  const everyProcess = await host.all();
  // An agent runs in a session of its own, so no process of an instance is in the server's session or in session 0 (the
  // kernel's threads). A mistake here would kill the server and the terminal it was started from.
  const ownSession = everyProcess.find(({ pid }) => pid === process.pid)?.session;
  const all = everyProcess.filter(({ session }) => session !== 0 && session !== ownSession);
  const agents = all.filter((facts) => membership.agents.some((agent) => isSameProcess(facts, agent)));
  const found = new Map(agents.map((facts) => [facts.pid, facts]));
  // Relatives of the agent are members, so their environments need not be read, which is the slowest step.
  addRelatives(found, all);
  const others = all.filter(({ pid }) => !found.has(pid));
  await forEachBounded(others, READS_AT_ONCE, async (facts) => {
    if (await belongs(host, membership, facts)) found.set(facts.pid, facts);
  });
  addRelatives(found, all);
  return parentsFirst([...found.values()].filter(({ state }) => state !== 'dead'));
}

async function belongs(host: HostProcesses, membership: Membership, facts: ProcessFacts): Promise<boolean> {
  if (membership.users.length > 0) {
    const users = await host.userIds(facts);
    if (users.some((user) => membership.users.includes(user))) return true;
  }
  return isMarked(await host.torporVariables(facts), membership);
}

/**
 * A caller of the agent may overwrite the variable of the instance, but not that of the sandbox, which the agent sets
 * last. A process with the variable of the sandbox and an unusable variable of the instance counts as a member.
 */
export function isMarked(
  variables: readonly string[],
  { sandboxId, includesGeneration: isOurs }: Membership,
): boolean {
  const start = `${INSTANCE_VARIABLE}=${sandboxId}/`;
  const generation = variables.find((line) => line.startsWith(start))?.slice(start.length);
  if (generation !== undefined && /^\d+$/.test(generation)) return isOurs(Number(generation));
  return variables.includes(`${SANDBOX_VARIABLE}=${sandboxId}`);
}

/** Adds the children of members and the processes of their sessions, until no more are found. */
function addRelatives(found: Map<number, ProcessFacts>, all: readonly ProcessFacts[]): void {
  for (let before = -1; before < found.size; ) {
    before = found.size;
    const sessions = new Set([...found.values()].map(({ session }) => session));
    for (const facts of all) {
      if (found.has(facts.parent) || sessions.has(facts.session)) found.set(facts.pid, facts);
    }
  }
}

function parentsFirst(members: readonly ProcessFacts[]): ProcessFacts[] {
  const parents = new Map(members.map(({ pid, parent }) => [pid, parent]));
  const depthOf = ({ pid }: ProcessFacts) => {
    let depth = 0;
    for (let at = parents.get(pid); at !== undefined && depth <= members.length; at = parents.get(at))
      depth++;
    return depth;
  };
  return members
    .map((facts) => ({ facts, depth: depthOf(facts) }))
    .sort((a, b) => a.depth - b.depth || a.facts.pid - b.facts.pid)
    .map(({ facts }) => facts);
}
