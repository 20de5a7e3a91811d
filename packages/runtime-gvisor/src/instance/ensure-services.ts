/** The declared services of an instance that has just been started, whatever came back with its memory. */
import { isDeepStrictEqual } from 'node:util';
import type { StartSpec } from '@torpor/engine';
import { type AgentClient, type ProcessInfo, Signal, serviceTag } from '@torpor/envd';
import type { Service } from '@torpor/protocol';
import {
  answers,
  declaredPort,
  serviceProcess,
  startServices,
  untilServicesReady,
} from '@torpor/runtime-shared';
import type { RuntimeContext } from '../runtime-context.ts';
import type { StartOrder } from '../start.ts';
import type { AgentSetup } from './agent-setup.ts';

/** How often it is asked whether a service that was killed has ended. */
const LOOK_MS = 10;
/** A connection that came just while the sandbox was brought back may never be noticed in it. */
const KNOCK_MS = 1_000;

/** A service that answered its ready check, or did not. */
interface ServiceProbe {
  readonly service: Service;
  readonly isReady: Promise<boolean>;
}

/**
 * Their programs come back to life while the agent does: who can be reached without it is asked meanwhile, once,
 * whether it is ready. What is no answer here is none yet.
 */
export function probeServices(host: string, { services }: StartSpec, signal: AbortSignal): ServiceProbe[] {
  return services.flatMap((service) => {
    const { port, ready } = service;
    if (port === undefined || ready?.path === undefined) return [];
    return { service, isReady: answers({ host, port }, ready.path, signal, KNOCK_MS) };
  });
}

/**
 * Those that came back as they are declared go on; the others are started, in the order they were declared in.
 * One that came back under the same name as something else was the template's, and makes way.
 */
export async function ensureServices(
  ctx: RuntimeContext,
  { spec, dial, use }: StartOrder,
  { agent, tagged, probes }: AgentSetup & { readonly probes: readonly ServiceProbe[] },
  signal: AbortSignal,
): Promise<void> {
  if (spec.services.length === 0) return;
  const { clock, settings } = ctx;
  // None may be the answer of an agent that does not say.
  const isSaid = use === 'files' || tagged.length > 0;
  const found = isSaid ? byTag(tagged) : await taggedProcesses(agent, signal);
  const here = { agent, clock, settings, portFor: declaredPort, dial };
  const back = spec.services.filter((service) => isRunning(service, found));
  const missing = spec.services.filter((service) => !back.includes(service));
  for (const { name } of missing) {
    if (found.has(serviceTag(name))) await end(ctx, serviceTag(name), agent, signal);
  }
  const ready = new Set<Service>();
  for (const { service, isReady } of probes)
    if (back.includes(service) && (await isReady)) ready.add(service);
  await untilServicesReady(
    here,
    back.filter((service) => !ready.has(service)),
    signal,
  );
  await startServices(here, missing, signal);
}

async function taggedProcesses(agent: AgentClient, signal: AbortSignal): Promise<Map<string, ProcessInfo>> {
  return byTag((await agent.process.list({}, { signal })).processes);
}

function byTag(processes: readonly ProcessInfo[]): Map<string, ProcessInfo> {
  return new Map(processes.flatMap((one) => (one.tag === undefined ? [] : [[one.tag, one] as const])));
}

function isRunning(service: Service, found: ReadonlyMap<string, ProcessInfo>): boolean {
  const config = found.get(serviceTag(service.name))?.config;
  if (config === undefined) return false;
  const { cmd, args, envs, cwd } = config;
  return isDeepStrictEqual(
    { cmd, args, envs: { ...envs }, ...(cwd === undefined ? {} : { cwd }) },
    serviceProcess(service, declaredPort(service)),
  );
}

async function end(
  { clock }: RuntimeContext,
  tag: string,
  agent: AgentClient,
  signal: AbortSignal,
): Promise<void> {
  const process = { selector: { case: 'tag', value: tag } } as const;
  await agent.process.sendSignal({ process, signal: Signal.SIGKILL }, { signal });
  while ((await taggedProcesses(agent, signal)).has(tag)) await clock.sleep(LOOK_MS, signal);
}
