/** Opens the runtime for a provider: probes its capabilities once, and renews the lifetimes of running sandboxes. */
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
import { InstanceRecords } from './instance/instance-records.ts';
import { Instances } from './instance/instances.ts';
import { listeningPorts } from './instance/listening-ports.ts';
import { openRelay } from './instance/relay.ts';
import { Relays } from './instance/relays.ts';
import { type ProbedSandbox, probeProvider } from './provider/probe.ts';
import { type Connection, Provider, type ProviderOptions } from './provider/provider.ts';
import { Snapshots } from './provider/snapshots.ts';

export interface E2bRuntimeOptions extends Partial<Omit<ProviderOptions, 'apiKey'>> {
  readonly apiKey: string;
  readonly dataDir: string;
  readonly clock: Clock;
  readonly settings?: RuntimeSettings;
  readonly report: Report;
  /** The provider's template that is used for `base`. */
  readonly template?: string | undefined;
}

export interface OpenedE2bRuntime extends E2bRuntime {
  close(): Promise<void>;
}

const PORTS_TIMEOUT_MS = 30_000;

export async function e2bRuntime(options: E2bRuntimeOptions): Promise<OpenedE2bRuntime> {
  const { dataDir, clock, report, template = 'base', settings = DEFAULT_RUNTIME_SETTINGS } = options;
  const { e2bLifetimeMs: lifetimeMs, e2bRequestMs: requestMs } = settings;
  const provider = new Provider({ lifetimeMs, requestMs, ...options });
  const directory = join(dataDir, 'e2b');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const home = await homeOf(directory);
  // The path of a socket has about 100 bytes, and the path of a data directory may be longer.
  const socketDir = join(tmpdir(), `torpor-e2b-${home.slice(0, 8)}`);
  const stopping = new AbortController();
  const capabilities = await cachedCapabilities(directory, provider, template, () =>
    probeProvider({
      provider,
      template,
      clock,
      open: (connection) => openProbed(connection, provider, socketDir),
      signal: stopping.signal,
    }),
  );
  const records = new InstanceRecords(directory);
  const runtime = new E2bRuntime({
    provider,
    records,
    instances: new Instances(provider, records, home),
    relays: new Relays({ socketDir, sandboxUrl: provider.options.sandboxUrl }),
    snapshots: new Snapshots(provider, records),
    clock,
    settings,
    report,
    capabilities,
    template,
  });
  const renewing = renewUntilAborted(runtime, options, provider.options.lifetimeMs / 3, stopping.signal);
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

async function renewUntilAborted(
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

/** Marks the sandboxes of this data directory at the provider, so that two servers never kill each other's sandboxes. */
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

/** Raised when the probe tries more than before, so that results of an older probe are not used. */
const PROBE_VERSION = 2;

/** The result of the probe is kept in a file for each provider and template. */
async function cachedCapabilities(
  directory: string,
  { options }: Provider,
  template: string,
  probe: () => Promise<Capabilities>,
): Promise<Capabilities> {
  const digest = createHash('sha256')
    .update(JSON.stringify([PROBE_VERSION, options.apiUrl, options.domain, template]))
    .digest('hex');
  const path = join(directory, `capabilities-${digest.slice(0, 16)}.json`);
  const written = await readFile(path, 'utf8').catch(() => undefined);
  const before = written === undefined ? undefined : capabilitiesSchema.safeParse(JSON.parse(written));
  if (before?.success) return before.data;
  const found = await probe();
  await writeFileDurably(path, JSON.stringify(found));
  return found;
}

const PROBE = 'torpor-probe';

/** The process survives a pause only with the memory, the file only with the files. */
async function openProbed(
  connection: Connection,
  provider: Provider,
  socketDir: string,
): Promise<ProbedSandbox> {
  const { sandboxUrl } = provider.options;
  const withAgent = async <T>(work: (agent: AgentClient) => Promise<T>): Promise<T> => {
    const socketPath = join(socketDir, `probe-${connection.providerId.slice(-12)}.sock`);
    const token = PROBE;
    const relay = await openRelay({ socketPath, connection, port: AGENT_PORT, sandboxUrl, token });
    const agent = connectAgent({ socketPath, accessToken: token });
    try {
      return await work(agent);
    } finally {
      agent.close();
      relay.close();
    }
  };
  return {
    prepare: () =>
      withAgent(async (agent) => {
        await agent.files.write(PROBE, PROBE);
        const process = { cmd: '/bin/sleep', args: ['3600'], envs: {} };
        for await (const _ of agent.process.start({ process, tag: PROBE, stdin: false })) return;
      }),
    hasProcess: () =>
      withAgent(async (agent) => (await agent.process.list({})).processes.some(({ tag }) => tag === PROBE)),
    hasFile: () =>
      withAgent(async (agent) => (await agent.files.read(PROBE).then(text, () => undefined)) === PROBE),
    isListening: (port) =>
      withAgent(async (agent) =>
        (await listeningPorts(agent, AbortSignal.timeout(PORTS_TIMEOUT_MS))).all.has(port),
      ),
  };
}
