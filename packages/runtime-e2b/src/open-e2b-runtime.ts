/** Opens the runtime for a provider: finds out what it can do, once, and keeps what runs there alive. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Clock, Report } from '@torpor/engine';
import { AGENT_PORT, type AgentClient, connectAgent } from '@torpor/envd';
import { isMissing, writeFileDurably } from '@torpor/host';
import { type Capabilities, capabilitiesSchema } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS, type RuntimeSettings } from '@torpor/runtime-shared';
import { E2bRuntime } from './e2b-runtime.ts';
import { listeningPorts } from './listening-ports.ts';
import { type ProbeInside, probeProvider } from './probe.ts';
import { Provider, type ProviderOptions, type Reached } from './provider.ts';
import { Records } from './records.ts';
import { openRelay } from './relay.ts';

export interface E2bRuntimeOptions extends Partial<Omit<ProviderOptions, 'apiKey'>> {
  readonly apiKey: string;
  readonly dataDir: string;
  readonly clock: Clock;
  readonly settings?: RuntimeSettings;
  readonly report: Report;
  /** The provider's template that stands for `base`. */
  readonly template?: string | undefined;
}

export interface OpenedE2bRuntime extends E2bRuntime {
  close(): Promise<void>;
}

const HEARING_MS = 30_000;

export async function e2bRuntime(options: E2bRuntimeOptions): Promise<OpenedE2bRuntime> {
  const { dataDir, clock, report, template = 'base', settings = DEFAULT_RUNTIME_SETTINGS } = options;
  const { e2bLifetimeMs: lifetimeMs, e2bRequestMs: requestMs } = settings;
  const provider = new Provider({ lifetimeMs, requestMs, ...options });
  const directory = join(dataDir, 'e2b');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const home = await homeOf(directory);
  // A socket's path is short, and a data directory's may not be.
  const socketDir = join(tmpdir(), `torpor-e2b-${home.slice(0, 8)}`);
  const stopping = new AbortController();
  const capabilities = await known(directory, provider, template, () =>
    probeProvider({
      provider,
      template,
      clock,
      inside: (reached) => insideOf(reached, provider, socketDir),
      signal: stopping.signal,
    }),
  );
  const records = new Records(directory);
  const runtime = new E2bRuntime({
    provider,
    records,
    clock,
    settings,
    report,
    capabilities,
    template,
    home,
    socketDir,
  });
  const renewing = renewForEver(runtime, options, provider.options.lifetimeMs / 3, stopping.signal);
  const close = runtime.close.bind(runtime);
  return Object.assign(runtime, {
    close: async () => {
      stopping.abort();
      await renewing;
      await close();
      await rm(socketDir, { recursive: true, force: true });
    },
  });
}

async function renewForEver(
  runtime: E2bRuntime,
  { clock, report }: Pick<E2bRuntimeOptions, 'clock' | 'report'>,
  everyMs: number,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    await clock.sleep(everyMs, signal).catch(() => {});
    if (signal.aborted) return;
    await runtime
      .renewAll(signal)
      .catch((error: unknown) => report('lifetimes could not be renewed', { error }));
  }
}

/** Marks what this data directory has at the provider, so that two of them never end each other's. */
async function homeOf(directory: string): Promise<string> {
  const path = join(directory, 'home');
  const before = await readFile(path, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
  if (before !== undefined) return before;
  const fresh = randomBytes(10).toString('hex');
  await writeFileDurably(path, fresh);
  return fresh;
}

/** Raised when more is tried than before, so that what was found out by less is not believed any longer. */
const PROBED = 2;

/** What was found out is kept for as long as provider and template are the same. */
async function known(
  directory: string,
  { options }: Provider,
  template: string,
  probe: () => Promise<Capabilities>,
): Promise<Capabilities> {
  const of = createHash('sha256')
    .update(JSON.stringify([PROBED, options.apiUrl, options.domain, template]))
    .digest('hex');
  const path = join(directory, `capabilities-${of.slice(0, 16)}.json`);
  const written = await readFile(path, 'utf8').catch(() => undefined);
  const before = written === undefined ? undefined : capabilitiesSchema.safeParse(JSON.parse(written));
  if (before?.success) return before.data;
  const found = await probe();
  await writeFileDurably(path, JSON.stringify(found));
  return found;
}

const PROBE = 'torpor-probe';

/** A process that sleeps is there afterwards only when the memory is; a file, when the files are. */
async function insideOf(reached: Reached, provider: Provider, socketDir: string): Promise<ProbeInside> {
  const { sandboxUrl } = provider.options;
  const ask = async <T>(work: (agent: AgentClient) => Promise<T>): Promise<T> => {
    const socketPath = join(socketDir, `probe-${reached.providerId.slice(-12)}.sock`);
    const token = PROBE;
    const relay = await openRelay({ socketPath, reached, port: AGENT_PORT, sandboxUrl, token });
    const agent = connectAgent({ socketPath, accessToken: token });
    try {
      return await work(agent);
    } finally {
      agent.close();
      relay.close();
    }
  };
  return {
    begin: () =>
      ask(async (agent) => {
        await agent.files.write(PROBE, PROBE);
        const process = { cmd: '/bin/sleep', args: ['3600'], envs: {} };
        for await (const _ of agent.process.start({ process, tag: PROBE, stdin: false })) return;
      }),
    lives: () =>
      ask(async (agent) => (await agent.process.list({})).processes.some(({ tag }) => tag === PROBE)),
    isWritten: () =>
      ask(async (agent) => (await agent.files.read(PROBE).then(text, () => undefined)) === PROBE),
    isHeard: (port) =>
      ask(async (agent) => (await listeningPorts(agent, AbortSignal.timeout(HEARING_MS))).all.has(port)),
  };
}
