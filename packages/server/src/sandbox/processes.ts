/** The processes of a sandbox: its jobs, and the other processes that its agent runs. */
import type { ProcessInfo } from '@torpor/envd';
import type { ProcessView, SandboxId } from '@torpor/protocol';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from './agent-failure.ts';
import { viewJobProcess, viewUntrackedProcess } from './process-views.ts';
import { connectToAgent } from './sandbox-connection.ts';

/** Never wakes the sandbox. */
export async function processesOf(
  ctx: RouteContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<ProcessView[]> {
  const { engine } = ctx;
  const { state, generation } = await engine.get(org, id);
  if (state !== 'running')
    return servicesFirst((await engine.allJobs(org, id)).map((job) => viewJobProcess(job, generation)));
  const processes = await listAgentProcesses(ctx, org, id, signal);
  const pids = new Map(processes.map(({ tag, pid }) => [tag, pid]));
  let jobs = await engine.allJobs(org, id);
  if (jobs.some((job) => job.state === 'running' && !pids.has(job.tag))) {
    await engine.compareJobs(org, id);
    jobs = await engine.allJobs(org, id);
  }
  const tracked = new Set(jobs.map(({ tag }) => tag));
  const rest = processes.filter(({ tag }) => tag === undefined || !tracked.has(tag));
  return [
    ...servicesFirst(jobs.map((job) => viewJobProcess(job, generation, pids.get(job.tag) ?? job.pid))),
    ...rest.map(viewUntrackedProcess),
  ];
}

async function listAgentProcesses(
  { engine }: RouteContext,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<readonly ProcessInfo[]> {
  const agent = connectToAgent(await engine.agent(org, id));
  const releaseLease = engine.leases.hold(id);
  try {
    return (await agent.process.list({}, { signal })).processes;
  } catch (thrown) {
    throw fromAgentError(thrown, id);
  } finally {
    agent.close();
    releaseLease();
  }
}

function servicesFirst(views: readonly ProcessView[]): ProcessView[] {
  const isService = ({ kind }: ProcessView) => kind === 'service';
  return [...views.filter(isService), ...views.filter((view) => !isService(view))];
}
