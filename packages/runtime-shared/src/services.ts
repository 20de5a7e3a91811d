/** Starting the declared services of an instance, one after the other, each when the one before it is ready. */
import { request } from 'node:http';
import type { Address, Clock } from '@torpor/engine';
import { type AgentClient, agentError, type ProcessEvent, serviceTag } from '@torpor/envd';
import { type Service, TorporError } from '@torpor/protocol';
import type { RuntimeSettings } from './settings.ts';

export interface ServiceContext {
  readonly agent: AgentClient;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  /** The port that a service is told to listen on, in PORT. */
  portFor(service: Service): number | undefined;
  /** Where a declared port can be dialled, once a process of the sandbox listens on it. */
  dial(port: number): Promise<Address | null>;
}

const TAIL_BYTES = 4_000;
const FIRST_LOOK_MS = 10;
const LONGEST_LOOK_MS = 200;

export async function startServices(
  ground: ServiceContext,
  services: readonly Service[],
  signal: AbortSignal,
): Promise<void> {
  for (const service of services) {
    const watching = new AbortController();
    try {
      const run = await startService(ground, service, AbortSignal.any([signal, watching.signal]));
      await waitUntilReady(ground, service, run, signal);
    } finally {
      // The process goes on; only we stop listening to it.
      watching.abort();
    }
  }
}

/** For services that run already: each is as ready as it must be for a start. */
export async function waitForServices(
  ground: Pick<ServiceContext, 'clock' | 'dial' | 'settings'>,
  services: readonly Service[],
  signal: AbortSignal,
): Promise<void> {
  for (const service of services)
    await waitUntilReady(ground, service, { tail: '', failure: undefined }, signal);
}

/** In a network of its own a service gets the very port it was declared with. */
export function declaredPort({ port }: Service): number | undefined {
  return port;
}

/** What an agent is asked to run for a service. */
export function serviceProcess({ command, cwd, env }: Service, port?: number) {
  return {
    cmd: '/bin/sh',
    args: ['-c', command],
    envs: { ...env, ...(port === undefined ? {} : { PORT: String(port) }) },
    ...(cwd === undefined ? {} : { cwd }),
  };
}

interface ServiceRun {
  /** The end of what it wrote. */
  tail: string;
  /** How it failed, in the agent's words. One that ended well may have left a daemon to do its work. */
  failure: string | undefined;
}

async function startService(
  ground: ServiceContext,
  service: Service,
  watching: AbortSignal,
): Promise<ServiceRun> {
  const process = serviceProcess(service, ground.portFor(service));
  const order = { process, tag: serviceTag(service.name), stdin: false };
  const events = ground.agent.process.start(order, { signal: watching })[Symbol.asyncIterator]();
  const run: ServiceRun = { tail: '', failure: undefined };
  await events.next().catch((thrown: unknown) => {
    watching.throwIfAborted();
    const { message } = agentError(thrown);
    throw notReady(service, `could not be started: ${message}`, run, thrown);
  });
  void watch(events, run).catch(() => {});
  return run;
}

async function watch(
  events: AsyncIterator<{ readonly event?: ProcessEvent | undefined }>,
  run: ServiceRun,
): Promise<void> {
  for (let next = await events.next(); next.done !== true; next = await events.next()) {
    const event = next.value.event?.event;
    if (event?.case === 'data' && event.value.output.value !== undefined) {
      run.tail = (run.tail + Buffer.from(event.value.output.value).toString('utf8')).slice(-TAIL_BYTES);
    }
    if (event?.case === 'end' && event.value.exitCode !== 0) run.failure = event.value.status;
  }
}

/** Ready when the port is listened on, and when the path, if there is one, answers below 500. */
async function waitUntilReady(
  ground: Pick<ServiceContext, 'clock' | 'dial' | 'settings'>,
  service: Service,
  run: ServiceRun,
  signal: AbortSignal,
): Promise<void> {
  const { port, ready } = service;
  if (port === undefined) return;
  const { clock, settings } = ground;
  const seconds = ready?.timeoutSeconds ?? settings.serviceReadyMs / 1_000;
  // A first page is often built while it is asked for.
  const isUp = (address: Address, path: string) => answers(address, path, signal, settings.serviceAnswerMs);
  const until = clock.monotonic() + seconds * 1_000;
  for (let pause = FIRST_LOOK_MS; ; pause = Math.min(2 * pause, LONGEST_LOOK_MS)) {
    signal.throwIfAborted();
    const address = await ground.dial(port);
    if (address !== null && (ready?.path === undefined || (await isUp(address, ready.path)))) return;
    if (run.failure !== undefined) throw notReady(service, `ended (${run.failure}) before it was ready`, run);
    if (clock.monotonic() >= until) {
      const what =
        address === null ? `did not listen on port ${port}` : `did not answer ${ready?.path} below 500`;
      throw notReady(service, `${what} within ${seconds} seconds`, run, undefined, 'timeout');
    }
    await clock.sleep(pause, signal);
  }
}

/** Below 500, within a bound; whatever else happens is no answer. */
export async function answers(
  address: Address,
  path: string,
  signal: AbortSignal,
  boundMs: number,
): Promise<boolean> {
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(boundMs)]);
  const status = await new Promise<number>((resolve) => {
    const asked = request({ ...address, path, signal: bounded, agent: false }, (response) => {
      response.destroy();
      resolve(response.statusCode ?? 500);
    });
    asked.on('error', () => resolve(500));
    asked.end();
  });
  return status < 500;
}

function notReady(
  service: Service,
  what: string,
  { tail }: ServiceRun,
  cause?: unknown,
  code: 'conflict' | 'timeout' = 'conflict',
): TorporError {
  const last = tail.trimEnd().split('\n').at(-1) ?? '';
  return new TorporError(code, `The service "${service.name}" ${what}${last === '' ? '.' : `: ${last}`}`, {
    hint: `Look at its output in "details", and correct the command or what it needs: ${service.command}`,
    details: { service: service.name, output: tail },
    cause,
  });
}
