/** Starts the declared services of an instance in order, each when the previous one is ready. */
import { request } from 'node:http';
import type { Address, Clock } from '@torpor/engine';
import { type AgentClient, agentError, type ProcessEvent, serviceTag } from '@torpor/envd';
import { type Service, TorporError } from '@torpor/protocol';
import type { RuntimeSettings } from './settings.ts';

export interface ServiceContext {
  readonly agent: AgentClient;
  readonly clock: Clock;
  readonly settings: RuntimeSettings;
  /** The port that the service gets in `PORT`. */
  portFor(service: Service): number | undefined;
  /** The address of a declared port, or null until a process of the sandbox listens on it. */
  dial(port: number): Promise<Address | null>;
}

const TAIL_BYTES = 4_000;
const FIRST_POLL_MS = 10;
const MAX_POLL_MS = 200;

export async function startServices(
  ctx: ServiceContext,
  services: readonly Service[],
  signal: AbortSignal,
): Promise<void> {
  for (const service of services) {
    const watching = new AbortController();
    try {
      const run = await startService(ctx, service, AbortSignal.any([signal, watching.signal]));
      await waitUntilReady(ctx, service, run, signal);
    } finally {
      // Stops reading the output. The process continues.
      watching.abort();
    }
  }
}

/** Waits until services that run already pass their ready checks. */
export async function waitForServices(
  ctx: Pick<ServiceContext, 'clock' | 'dial' | 'settings'>,
  services: readonly Service[],
  signal: AbortSignal,
): Promise<void> {
  for (const service of services)
    await waitUntilReady(ctx, service, { tail: '', failure: undefined }, signal);
}

/** In a network of its own a service gets its declared port. */
export function declaredPort({ port }: Service): number | undefined {
  return port;
}

/** The process that the agent starts for a service. */
export function serviceProcess({ command, cwd, env }: Service, port?: number) {
  return {
    cmd: '/bin/sh',
    args: ['-c', command],
    envs: { ...env, ...(port === undefined ? {} : { PORT: String(port) }) },
    ...(cwd === undefined ? {} : { cwd }),
  };
}

interface ServiceRun {
  /** The last part of the output. */
  tail: string;
  /** The agent's description of a failure. Undefined after exit code 0: the service may have started a daemon. */
  failure: string | undefined;
}

async function startService(
  ctx: ServiceContext,
  service: Service,
  watching: AbortSignal,
): Promise<ServiceRun> {
  const process = serviceProcess(service, ctx.portFor(service));
  const order = { process, tag: serviceTag(service.name), stdin: false };
  const events = ctx.agent.process.start(order, { signal: watching })[Symbol.asyncIterator]();
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

/** A service is ready when a process listens on its port and its ready path, if any, answers with a status below 500. */
async function waitUntilReady(
  ctx: Pick<ServiceContext, 'clock' | 'dial' | 'settings'>,
  service: Service,
  run: ServiceRun,
  signal: AbortSignal,
): Promise<void> {
  const { port, ready } = service;
  if (port === undefined) return;
  const { clock, settings } = ctx;
  const seconds = ready?.timeoutSeconds ?? settings.serviceReadyMs / 1_000;
  // Development servers often build the first page during the first request.
  const isUp = (address: Address, path: string) => answers(address, path, signal, settings.serviceAnswerMs);
  const until = clock.monotonic() + seconds * 1_000;
  for (let pause = FIRST_POLL_MS; ; pause = Math.min(2 * pause, MAX_POLL_MS)) {
    signal.throwIfAborted();
    const address = await ctx.dial(port);
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

/** Whether the service answers with a status below 500 in time. Any failure counts as no answer. */
export async function answers(
  address: Address,
  path: string,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<boolean> {
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
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
    hint: `Look at its output in "details", and correct the command or its environment: ${service.command}`,
    details: { service: service.name, output: tail },
    cause,
  });
}
