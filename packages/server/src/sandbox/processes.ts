/** What runs in a sandbox, or would: asked of its agent when it runs, told from what was written down when not. */
import { type AgentClient, agentError, type ProcessInfo } from '@torpor/envd';
import type { ProcessView, SandboxId, SandboxView } from '@torpor/protocol';
import type { RouteParts } from '../parts.ts';
import { fromAgent } from './agent-failure.ts';
import { connect } from './awake.ts';
import { endOf } from './command-end.ts';
import { fateOf, isRunOf, viewRunning, viewService, viewTracked } from './process-views.ts';
import { listTracked, markEnded, type TrackedProcess } from './tracked-table.ts';

/** Never wakes the sandbox. */
export async function processesOf(
  parts: RouteParts,
  org: string,
  id: SandboxId,
  signal: AbortSignal,
): Promise<ProcessView[]> {
  const { engine, db } = parts;
  const sandbox = await engine.get(org, id);
  const tracked = await listTracked(db, id);
  if (fateOf(sandbox) !== undefined) return withoutAgent(sandbox, tracked);
  const agent = connect(await engine.agent(org, id));
  const letGo = engine.leases.hold(id);
  try {
    return await withAgent(parts, org, sandbox, tracked, agent, signal);
  } catch (thrown) {
    throw fromAgent(thrown, id);
  } finally {
    agent.close();
    letGo();
  }
}

function withoutAgent(sandbox: SandboxView, tracked: readonly TrackedProcess[]): ProcessView[] {
  const fate = fateOf(sandbox) ?? { status: 'suspended', reason: null };
  // A service starts again with the sandbox; a process whose memory was not kept does not.
  const forgotten = fate.status === 'suspended' && sandbox.lost.includes('processes');
  return [
    ...sandbox.services.map((service) => viewService(service, null, fate.status, fate.reason)),
    ...tracked.map((process) => {
      if (process.ended !== null) return viewTracked(process, process.ended, process.reason);
      if (forgotten) return viewTracked(process, 'lost', 'only the files of the sandbox were kept');
      return viewTracked(process, fate.status, fate.reason);
    }),
  ];
}

async function withAgent(
  parts: RouteParts,
  org: string,
  sandbox: SandboxView,
  tracked: readonly TrackedProcess[],
  agent: AgentClient,
  signal: AbortSignal,
): Promise<ProcessView[]> {
  const { processes } = await agent.process.list({}, { signal });
  const services = await Promise.all(
    sandbox.services.map((service) => serviceView(parts, org, sandbox, service, processes)),
  );
  const background = await Promise.all(
    tracked.map(async (process) => {
      if (process.ended !== null) return viewTracked(process, process.ended, process.reason);
      if (processes.some(({ tag }) => tag === process.id)) return viewTracked(process, 'running', null);
      const { ended, reason } = await settle(parts, sandbox, process, agent, signal);
      return viewTracked(process, ended, reason);
    }),
  );
  const rest = processes.filter(
    (process) =>
      !tracked.some(({ id }) => id === process.tag) &&
      !sandbox.services.some((service) => isRunOf(service, process)),
  );
  return [...services, ...background, ...rest.map(viewRunning)];
}

async function serviceView(
  { engine }: RouteParts,
  org: string,
  sandbox: SandboxView,
  service: SandboxView['services'][number],
  processes: readonly ProcessInfo[],
): Promise<ProcessView> {
  const run = processes.find((process) => isRunOf(service, process));
  const listens =
    run === undefined && service.port !== undefined
      ? (await engine.dial(org, sandbox.id, service.port).catch(() => null)) !== null
      : false;
  if (run === undefined && !listens)
    return viewService(service, null, 'lost', 'it does not run: it ended or never started');
  const again = sandbox.generation > 1 && sandbox.lost.includes('processes');
  return viewService(service, run?.pid ?? null, again ? 'restarted' : 'running', null);
}

type End = Pick<TrackedProcess, 'reason'> & { readonly ended: 'exited' | 'lost' };

/** Finds out how a process that is not there any more ended, and writes it down. */
async function settle(
  parts: RouteParts,
  sandbox: SandboxView,
  process: TrackedProcess,
  agent: AgentClient,
  signal: AbortSignal,
): Promise<End> {
  const lostIn = process.generation < sandbox.generation ? await lostSince(parts, process) : undefined;
  const end: End =
    lostIn === undefined
      ? { ended: 'exited', reason: await howItEnded(agent, process.id, signal) }
      : {
          ended: 'lost',
          reason: `it did not come back when the sandbox was started from files (generation ${lostIn})`,
        };
  await parts.db.transaction((tx) => markEnded(tx, process.id, end.ended, end.reason ?? ''));
  return end;
}

const PAGE = 1_000;

/** The first start after its own that did not bring processes back. */
async function lostSince({ engine }: RouteParts, process: TrackedProcess): Promise<number | undefined> {
  let afterSeq = 0;
  for (;;) {
    const events = await engine.events({ sandboxId: process.sandboxId, afterSeq }, PAGE);
    for (const { type, generation, data } of events) {
      const lost = data['lost'];
      const isStart = type === 'sandbox.resumed' && generation > process.generation;
      if (isStart && Array.isArray(lost) && lost.includes('processes')) return generation;
    }
    const last = events.at(-1);
    if (last === undefined || events.length < PAGE) return undefined;
    afterSeq = last.seq;
  }
}

/** The agent remembers ends for a while. */
async function howItEnded(agent: AgentClient, tag: string, signal: AbortSignal): Promise<string> {
  const process = { selector: { case: 'tag' as const, value: tag } };
  try {
    for await (const { event } of agent.process.connect({ process }, { signal })) {
      if (event?.event.case !== 'end') continue;
      const end = endOf(event.event.value);
      return end.signal === null
        ? `it ended with exit code ${end.exitCode}`
        : `it was ended by ${end.signal}`;
    }
  } catch (thrown) {
    if (agentError(thrown).code !== 'not_found') throw thrown;
  }
  return 'it ended';
}
