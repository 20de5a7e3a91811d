/**
 * Which processes belong to an instance. Parents do not tell: a daemon leaves its parent on purpose. So a
 * process belongs when it carries the instance's mark in its environment or runs as the instance's user,
 * and with it everything that it started or that shares its session.
 */
import { SANDBOX_VARIABLE } from '@torpor/envd';
import { forEachBounded, type HostProcesses, isSameProcess, type ProcessFacts } from '@torpor/host';
import type { SandboxId } from '@torpor/protocol';

/** Names the instance, `<sandbox>/<generation>`, in the environment of each of its processes. */
export const INSTANCE_VARIABLE = 'TORPOR_INSTANCE';

export interface Belonging {
  readonly sandboxId: SandboxId;
  isOurs(generation: number): boolean;
  /** Users that nobody but these instances runs as. */
  readonly users: readonly number[];
  /** Processes known to be theirs from the day they were started. */
  readonly agents: readonly Pick<ProcessFacts, 'pid' | 'startedAt'>[];
}

const READS_AT_ONCE = 32;

/** Everything alive that belongs, parents before their children. */
export async function processesOf(host: HostProcesses, belonging: Belonging): Promise<ProcessFacts[]> {
  const everybody = await host.all();
  // An agent is started in a session of its own: nothing of ours is in the server's, nor in none, where the
  // kernel's own are. Whoever is mistaken here would end the server and the terminal it was started from.
  const ownSession = everybody.find(({ pid }) => pid === process.pid)?.session;
  const all = everybody.filter(({ session }) => session !== 0 && session !== ownSession);
  const agents = all.filter((facts) => belonging.agents.some((agent) => isSameProcess(facts, agent)));
  const found = new Map(agents.map((facts) => [facts.pid, facts]));
  // Kin of the agent need not be asked for their marks, which takes longer than everything else.
  addKin(found, all);
  const others = all.filter(({ pid }) => !found.has(pid));
  await forEachBounded(others, READS_AT_ONCE, async (facts) => {
    if (await belongs(host, belonging, facts)) found.set(facts.pid, facts);
  });
  addKin(found, all);
  return parentsFirst([...found.values()].filter(({ state }) => state !== 'dead'));
}

async function belongs(host: HostProcesses, belonging: Belonging, facts: ProcessFacts): Promise<boolean> {
  if (belonging.users.length > 0) {
    const users = await host.userIds(facts);
    if (users.some((user) => belonging.users.includes(user))) return true;
  }
  return isMarked(await host.torporVariables(facts), belonging);
}

/**
 * A caller of the agent may overwrite the instance's mark but not the sandbox's, which the agent sets last;
 * so a process of the sandbox with a mark that says nothing is taken for ours.
 */
export function isMarked(marks: readonly string[], { sandboxId, isOurs }: Belonging): boolean {
  const start = `${INSTANCE_VARIABLE}=${sandboxId}/`;
  const generation = marks.find((line) => line.startsWith(start))?.slice(start.length);
  if (generation !== undefined && /^\d+$/.test(generation)) return isOurs(Number(generation));
  return marks.includes(`${SANDBOX_VARIABLE}=${sandboxId}`);
}

/** Children of what belongs, and what shares a session with it, until there is nobody more. */
function addKin(found: Map<number, ProcessFacts>, all: readonly ProcessFacts[]): void {
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
