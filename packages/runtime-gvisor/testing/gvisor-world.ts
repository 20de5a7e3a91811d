/**
 * A gVisor runtime with a checkpoint store, in directories of its own, for tests. Opening a world takes
 * seconds, so the tests of a file share one; each test leaves it empty with `dispose`.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, realpath, rm, truncate, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import {
  adoptDataDirectory,
  type LayeredCheckpointStore,
  openDirectoryStore,
} from '@torpor/checkpoint-store';
import type { Instance, Runtime, SealedCheckpoint, StartSpec } from '@torpor/engine';
import {
  listedInstances,
  NO_SPEC,
  newInstance,
  type RuntimeUnderTest,
  startFrom,
  templateOf,
  unhurried,
} from '@torpor/engine/testing';
import { type AgentClient, asUser } from '@torpor/envd';
import { linuxProcesses } from '@torpor/host';
import { agentBundle } from '@torpor/runtime-shared/testing';
import { MEMORY, needsOf } from '../src/checkpoint-needs.ts';
import { agentAt } from '../src/instance/agent-setup.ts';
import { InstanceFiles, type InstanceRecord } from '../src/instance/instance-files.ts';
import { serverTag } from '../src/instance/instance-names.ts';
import { namespaceFile } from '../src/mounts/mount-namespace.ts';
import { type GvisorRuntimeOptions, gvisorRuntime, type OpenedRuntime } from '../src/open-gvisor-runtime.ts';
import { chosenRunsc } from './chosen-runsc.ts';
import { pageLayersOf } from './page-layers.ts';

const execute = promisify(execFile);

interface CommandResult {
  readonly output: string;
  readonly exitCode: number;
}

export interface GvisorWorld extends RuntimeUnderTest {
  readonly dataDir: string;
  readonly store: LayeredCheckpointStore;
  sharedTemplate(): Promise<SealedCheckpoint>;
  reopen(): Promise<Runtime>;
  /** Runs `work` after one server has closed and before the next one opens. */
  whileClosed(work: () => Promise<void>): Promise<void>;
  /** Runs a program in the mount namespace of the sandboxes' roots. */
  inNamespace(program: string, ...args: string[]): Promise<string>;
  adoptRunsc: OpenedRuntime['adoptRunsc'];
  /** Starts an instance, by default from the memory of the template. */
  started(spec?: Partial<StartSpec>, from?: SealedCheckpoint, instance?: Instance): Promise<Instance>;
  /** The record of an instance on disk. */
  recordOf(instance: Instance): InstanceRecord;
  agent(instance: Instance): Promise<AgentClient>;
  /** Runs a shell command in the instance until it ends, by default as `user`. */
  run(instance: Instance, command: string, user?: string): Promise<CommandResult>;
  /** Starts a shell command in the instance and leaves it running; resolves with its first output. */
  begin(instance: Instance, command: string): Promise<string>;
  /** The command that runs Node in an instance. */
  node(): Promise<string>;
  /** Starts a Node program in the instance and leaves it running; resolves after its first output. */
  start(instance: Instance, source: string): Promise<void>;
  /** Sends an HTTP request to a server in the instance. */
  get(instance: Instance, port: number, path?: string): Promise<string>;
  /** Destroys the instances that a test has left. */
  dispose(): Promise<void>;
  /** Closes the runtime and removes everything; throws when a process, mount or namespace is left. */
  close(): Promise<void>;
}

/** Why tests with gVisor cannot run here; null when they can. */
export async function whyNoGvisor(): Promise<string | null> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'gVisor needs root on Linux';
  return (await chosenRunsc()) === null ? 'there is no usable runsc on this host' : null;
}

const inMemoryPart = ({ path }: SealedCheckpoint, name: string) => join(path ?? '', MEMORY, name);

async function inOwnPageLayer(checkpoint: SealedCheckpoint, name: string): Promise<string> {
  const [own = ''] = await pageLayersOf(checkpoint);
  return join(own, name);
}

/** Ways to damage the memory image of a checkpoint. */
export const MEMORY_DAMAGES = {
  'checkpoint.img.zst missing': (checkpoint) => rm(inMemoryPart(checkpoint, 'checkpoint.img.zst')),
  'own pages missing': async (checkpoint) => rm(await inOwnPageLayer(checkpoint, 'pages.zst')),
  'own pages truncated': async (checkpoint) => truncate(await inOwnPageLayer(checkpoint, 'pages.zst'), 100),
  'pieces.json missing': (checkpoint) => rm(inMemoryPart(checkpoint, 'pieces.json')),
} satisfies Readonly<Record<string, (checkpoint: SealedCheckpoint) => Promise<void>>>;

/** A program that counts requests in memory and writes files on request. No other program uses its port. */
const COUNTER_PORT = 7_007;
const COUNTER = `let count = 0;
require('node:http').createServer(async (request, response) => {
  if (request.method === 'POST') {
    const { path, text } = JSON.parse(Buffer.concat(await request.toArray()));
    require('node:fs').writeFileSync(path, text);
    count++;
  }
  response.end(String(count));
}).listen(${COUNTER_PORT}, () => console.log('ready'));`;

export async function makeGvisorWorld(
  options: Partial<Omit<GvisorRuntimeOptions, 'layerStore'>> = {},
): Promise<GvisorWorld> {
  const dataDir = await realpath(options.dataDir ?? (await mkdtemp(join(tmpdir(), 'torpor-g-'))));
  const found = await chosenRunsc();
  if (found === null) throw new Error('There is no usable runsc.');
  const runsc = { program: found.program, version: found.version.name };
  const agentDir = await agentBundle();
  let store: LayeredCheckpointStore;
  /** As a server does it. */
  const open = async () => {
    await adoptDataDirectory(dataDir);
    store = await openDirectoryStore({ root: join(dataDir, 'checkpoints') });
    return gvisorRuntime({ layerStore: store.layerStore, agentDir, runsc, ...options, dataDir });
  };
  let runtime: OpenedRuntime = await open();
  const clients: AgentClient[] = [];
  let template: SealedCheckpoint | undefined;

  const agent = async (instance: Instance) => {
    const { address, token } = await runtime.agent(instance, unhurried);
    if (!('host' in address)) throw new Error('The agent does not listen on an address.');
    const client = agentAt(address.host, token);
    clients.push(client);
    return client;
  };
  const shell = (client: AgentClient, command: string, user = 'user') =>
    client.process.start(
      { process: { cmd: '/bin/sh', args: ['-c', command] }, stdin: false },
      { headers: asUser(user) },
    );
  const run: GvisorWorld['run'] = async (instance, command, user) => {
    let output = '';
    for await (const { event } of shell(await agent(instance), command, user)) {
      if (event?.event.case === 'data')
        output += Buffer.from(event.event.value.output.value ?? []).toString();
      if (event?.event.case === 'end') return { output, exitCode: event.event.value.exitCode };
    }
    throw new Error(`The agent did not report the end of: ${command}`);
  };
  const begin = async (instance: Instance, command: string) => {
    for await (const { event } of shell(await agent(instance), command)) {
      if (event?.event.case === 'data') return Buffer.from(event.event.value.output.value ?? []).toString();
      if (event?.event.case === 'end') throw new Error(`The command ended without output: ${command}`);
    }
    throw new Error(`The command printed nothing: ${command}`);
  };
  const node = async () => {
    const { programs } = store.layerStore;
    const [digest = ''] = await programs.list('tools');
    const manifest = await readFile(join(programs.path({ kind: 'tools', digest }), 'manifest.json'), 'utf8');
    const { loader: ld } = JSON.parse(manifest) as { readonly loader: string };
    return `/.torpor/lib/${ld} --library-path /.torpor/lib /.torpor/node`;
  };
  const script = async (instance: Instance, source: string) => {
    const name = `/tmp/${Math.random().toString(36).slice(2)}.cjs`;
    await (await agent(instance)).files.write(name, source);
    await begin(instance, `exec ${await node()} ${name}`);
  };
  const count = async (instance: Instance, body?: string): Promise<string> => {
    if ((await runtime.dial(instance, COUNTER_PORT, unhurried)) === null) await script(instance, COUNTER);
    return ask(await address(instance, COUNTER_PORT), '/', body);
  };
  const address = async (instance: Instance, port: number) => {
    const found = await runtime.dial(instance, port, unhurried);
    if (found === null || !('host' in found)) throw new Error(`Nothing listens on ${port}.`);
    return found;
  };

  const world: GvisorWorld = {
    get runtime() {
      return runtime;
    },
    get store() {
      return store;
    },
    dataDir,
    recordOf: (instance) => recordIn(dataDir, instance),
    agent,
    run,
    begin,
    node,
    adoptRunsc: (runsc) => runtime.adoptRunsc(runsc),
    reopen: async () => {
      await world.whileClosed(async () => {});
      return runtime;
    },
    whileClosed: async (work) => {
      await runtime.close();
      try {
        await work();
      } finally {
        runtime = await open();
      }
    },
    inNamespace: async (program, ...args) => {
      const file = namespaceFile(join('/run/torpor', serverTag(dataDir)));
      const { stdout } = await execute('nsenter', [`--mount=${file}`, '--', program, ...args]);
      return stdout;
    },
    sharedTemplate: async () => {
      const isThere =
        template !== undefined &&
        (await runtime.checkUsable(template, unhurried).then(
          () => true,
          () => false,
        ));
      if (!isThere) template = await templateOf({ runtime, store });
      return template as SealedCheckpoint;
    },
    started: async (spec = {}, from, instance = newInstance()) => {
      const source = from ?? (await world.sharedTemplate());
      await startFrom({ runtime, store }, instance, source, 'memory', { ...NO_SPEC, ...spec });
      return instance;
    },
    start: script,
    get: async (instance, port, path = '/') => ask(await address(instance, port), path),
    program: {
      write: async (instance, path, content) => {
        const isRunning = (await runtime.observe(instance, unhurried)).is === 'running';
        if (isRunning) await count(instance, JSON.stringify({ path, text: content }));
        return isRunning;
      },
      read: async (instance, path) => (await agent(instance)).files.read(path).then(text, () => undefined),
      remove: async (instance, path) => {
        await (await agent(instance)).filesystem.remove({ path });
      },
      counter: async (instance) => Number(await count(instance)),
      listen: (instance, port) =>
        script(
          instance,
          `require('net').createServer().listen(${port}, '127.0.0.1', () => console.log('listening'))`,
        ),
    },
    kill: async (instance) => endSentry(dataDir, instance),
    wipe: async (instance) => {
      await endSentry(dataDir, instance);
      await runtime.destroy(instance, unhurried);
    },
    damage: async (checkpoint, how) => {
      const [top] = needsOf(checkpoint).layers;
      const layer = join(dataDir, 'checkpoints', 'layers', top?.id ?? '');
      if (how === 'missing') await rm(layer, { recursive: true });
      else await writeFile(join(layer, 'seal.json'), '{');
    },
    memoryDamages: MEMORY_DAMAGES,
    dispose: async () => {
      for (const client of clients.splice(0)) client.close();
      for (const instance of await listedInstances(runtime)) await runtime.destroy(instance, unhurried);
    },
    close: async () => {
      await runtime.close();
      await expectNothingLeft(dataDir);
      await rm(dataDir, { recursive: true });
    },
  };
  return world;
}

function recordIn(dataDir: string, instance: Instance): InstanceRecord {
  const record = new InstanceFiles(join(dataDir, 'gvisor', 'instances')).read(instance);
  if (record === undefined) throw new Error(`There is no record of ${instance.sandboxId}.`);
  return record;
}

/** Kills the sentry from outside, as the kernel does when memory runs out. */
async function endSentry(dataDir: string, instance: Instance): Promise<void> {
  const { container } = recordIn(dataDir, instance);
  const sentries = (await commandLines()).filter(
    ({ line }) => line.includes('runsc-sandbox') && line.endsWith(`${container.id}\0`),
  );
  for (const { pid } of sentries) process.kill(pid, 'SIGKILL');
  const isDead = async (pid: number) => {
    const facts = await linuxProcesses.read(pid);
    return facts === undefined || facts.state === 'dead';
  };
  for (const { pid } of sentries)
    while (!(await isDead(pid))) await new Promise((resolve) => setTimeout(resolve, 10));
}

async function commandLines(): Promise<{ readonly pid: number; readonly line: string }[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  return Promise.all(
    pids.map(async (pid) => ({
      pid,
      line: await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => ''),
    })),
  );
}

async function expectNothingLeft(dataDir: string): Promise<void> {
  const tag = serverTag(dataDir);
  const left = (await commandLines()).filter(({ line }) => line.includes(`/run/torpor/${tag}/`));
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8'))
    .split('\n')
    .filter((line) => line.includes(dataDir));
  const namespaces = (await readdir('/run/netns').catch(() => [])).filter((name) =>
    name.startsWith(`${tag}-`),
  );
  const states = (await readdir('/run/torpor')).filter((name) => name === tag);
  const all = [...left.map(({ line }) => line), ...mounts, ...namespaces, ...states];
  if (all.length > 0) throw new Error(`Left over:\n${all.join('\n')}`);
}

function ask(
  address: { readonly host: string; readonly port: number },
  path: string,
  body?: string,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(
      { ...address, path, method: body === undefined ? 'GET' : 'POST', agent: false },
      (response) => resolve(text(response)),
    );
    asked.on('error', reject);
    asked.end(body);
  });
}
