/** Makes sure that the declared services of a started instance run and are ready. */
import { isDeepStrictEqual } from 'node:util';
import type { StartSpec } from '@torpor/engine';
import { type AgentClient, type ProcessInfo, Signal, serviceTag } from '@torpor/envd';
import type { Service } from '@torpor/protocol';
import {
  answers,
  declaredPort,
  serviceProcess,
  startServices,
  waitForServices,
} from '@torpor/runtime-shared';
import type { RuntimeContext } from '../runtime-context.ts';
import type { StartRequest } from '../start.ts';
import type { AgentSetup } from './agent-setup.ts';

/** How often the agent is asked whether a killed service has ended. */
const POLL_MS = 10;
/** A sandbox that is being restored may never notice a connection. */
const PROBE_TIMEOUT_MS = 1_000;

/** A ready check that was sent before the agent was set up. */
interface ServiceProbe {
  readonly service: Service;
  readonly isReady: Promise<boolean>;
}

/**
 * Sends the HTTP ready checks once, while the agent is being set up: restored services run again at the same time as the
 * agent. A check without an answer is not a failure; it is sent again later.
 */
export function probeServices(host: string, { services }: StartSpec, signal: AbortSignal): ServiceProbe[] {
  return services.flatMap((service) => {
    const { port, ready } = service;
    if (port === undefined || ready?.path === undefined) return [];
    return { service, isReady: answers({ host, port }, ready.path, signal, PROBE_TIMEOUT_MS) };
  });
}

interface EnsuredServices {
  /** Ports of restored services that have answered on the sandbox's own address. */
  readonly answered: readonly number[];
  /** Names of services that were not started, because their commands had done their work in the restored memory. */
  readonly succeeded: readonly string[];
}

/**
 * Restored services that match their declaration go on. A service that had ended by itself with exit code 0 is not started
 * again: what it left, such as a daemon, is in the restored memory too. With a port, this holds only while something
 * listens on the port. The other services are started, in the order of the declaration. A restored process with the tag of
 * a service and another command belongs to the template, and is killed first.
 */
export async function ensureServices(
  ctx: Pick<RuntimeContext, 'clock' | 'settings'>,
  { spec, dial, mode }: Pick<StartRequest, 'dial' | 'mode'> & { readonly spec: Pick<StartSpec, 'services'> },
  { agent, tagged, succeeded, probes }: AgentSetup & { readonly probes: readonly ServiceProbe[] },
  signal: AbortSignal,
): Promise<EnsuredServices> {
  if (spec.services.length === 0) return { answered: [], succeeded: [] };
  const { clock, settings } = ctx;
  // An older agent does not report tagged processes in its answer; then the list is empty and must be asked for.
  const isReported = mode === 'files' || tagged.length > 0 || succeeded.length > 0;
  const found = isReported ? byTag(tagged) : await taggedProcesses(agent, signal);
  const serviceContext = { agent, clock, settings, portFor: declaredPort, dial };
  const ended = byTag(succeeded);
  const done: Service[] = [];
  for (const service of spec.services) {
    const hasSucceeded = mode === 'memory' && isProcessOf(service, ended);
    if (hasSucceeded && (service.port === undefined || (await dial(service.port)) !== null))
      done.push(service);
  }
  const restored = spec.services.filter((service) => isProcessOf(service, found) || done.includes(service));
  const missing = spec.services.filter((service) => !restored.includes(service));
  for (const { name } of missing) {
    if (found.has(serviceTag(name))) await kill(ctx, serviceTag(name), agent, signal);
  }
  const ready = new Set<Service>();
  for (const { service, isReady } of probes)
    if (restored.includes(service) && (await isReady)) ready.add(service);
  await waitForServices(
    serviceContext,
    restored.filter((service) => !ready.has(service)),
    signal,
  );
  await startServices(serviceContext, missing, signal);
  return { answered: [...ready].flatMap(({ port }) => port ?? []), succeeded: done.map(({ name }) => name) };
}

async function taggedProcesses(agent: AgentClient, signal: AbortSignal): Promise<Map<string, ProcessInfo>> {
  return byTag((await agent.process.list({}, { signal })).processes);
}

function byTag(processes: readonly ProcessInfo[]): Map<string, ProcessInfo> {
  return new Map(
    processes.flatMap((process) => (process.tag === undefined ? [] : [[process.tag, process] as const])),
  );
}

/** Whether the process with the tag of the service was started from this declaration. */
function isProcessOf(service: Service, found: ReadonlyMap<string, ProcessInfo>): boolean {
  const config = found.get(serviceTag(service.name))?.config;
  if (config === undefined) return false;
  const { cmd, args, envs, cwd } = config;
  return isDeepStrictEqual(
    { cmd, args, envs: { ...envs }, ...(cwd === undefined ? {} : { cwd }) },
    serviceProcess(service, declaredPort(service)),
  );
}

async function kill(
  { clock }: Pick<RuntimeContext, 'clock'>,
  tag: string,
  agent: AgentClient,
  signal: AbortSignal,
): Promise<void> {
  const process = { selector: { case: 'tag', value: tag } } as const;
  await agent.process.sendSignal({ process, signal: Signal.SIGKILL }, { signal });
  while ((await taggedProcesses(agent, signal)).has(tag)) await clock.sleep(POLL_MS, signal);
}
