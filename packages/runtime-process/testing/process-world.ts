/** A process runtime with a checkpoint store and other needs of tests, in its own directories. */
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rm,
  rmdir,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { openDirectoryStore } from '@torpor/checkpoint-store';
import type { CheckpointStore, Instance, Runtime, SealedCheckpoint, StartSpec } from '@torpor/engine';
import {
  listedInstances,
  NO_SPEC,
  newInstance,
  type RuntimeUnderTest,
  startFrom,
  templateOf,
  unhurried,
} from '@torpor/engine/testing';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { agentBundle } from '@torpor/runtime-shared/testing';
import { type ProcessRuntimeOptions, processRuntime } from '../src/open-process-runtime.ts';

export interface ProcessWorld extends RuntimeUnderTest {
  readonly dataDir: string;
  readonly instancesDir: string;
  readonly store: CheckpointStore;
  readonly template: SealedCheckpoint;
  reopen(): Promise<Runtime>;
  /** Starts an instance, by default from the template. */
  started(spec?: Partial<StartSpec>, from?: SealedCheckpoint, instance?: Instance): Promise<Instance>;
  home(instance: Instance): string;
  /** A client of the instance's agent; `dispose` closes it. */
  agent(instance: Instance): Promise<AgentClient>;
  /** Runs a shell command in the instance until it ends. */
  run(instance: Instance, command: string): Promise<{ readonly output: string; readonly exitCode: number }>;
  /** Starts a shell command in the instance and resolves with its first output. The command continues. */
  begin(instance: Instance, command: string): Promise<string>;
}

export async function makeProcessWorld(options: Partial<ProcessRuntimeOptions> = {}): Promise<ProcessWorld> {
  const top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-p-')));
  await chmod(top, 0o711);
  const dataDir = join(top, 'data');
  const instancesDir = options.instancesDir ?? join(top, 'i');
  await mkdir(dataDir, { mode: 0o700 });
  const store = await openDirectoryStore({ root: join(dataDir, 'checkpoints') });
  const agentDir = await agentBundle();
  const open = () =>
    processRuntime({ dataDir, instancesDir, agentDir, sealedPath: (id) => store.path(id), ...options });
  const runtime = await open();
  const clients: AgentClient[] = [];

  const agent = async (instance: Instance) => {
    const { address, token } = await runtime.agent(instance, unhurried);
    if (!('socketPath' in address)) throw new Error('The agent should listen on a socket.');
    const client = connectAgent({ socketPath: address.socketPath, accessToken: token });
    clients.push(client);
    return client;
  };
  const home = ({ sandboxId, generation }: Instance) =>
    join(instancesDir, sandboxId, String(generation), 'home');
  const shell = (client: AgentClient, command: string) =>
    client.process.start({ process: { cmd: '/bin/sh', args: ['-c', command] }, stdin: false });

  const run: ProcessWorld['run'] = async (instance, command) => {
    let output = '';
    for await (const { event } of shell(await agent(instance), command)) {
      if (event?.event.case === 'data')
        output += Buffer.from(event.event.value.output.value ?? []).toString();
      if (event?.event.case === 'end') return { output, exitCode: event.event.value.exitCode };
    }
    throw new Error(`The agent did not say how it ended: ${command}`);
  };
  const begin: ProcessWorld['begin'] = async (instance, command) => {
    for await (const { event } of shell(await agent(instance), command)) {
      if (event?.event.case === 'data') return Buffer.from(event.event.value.output.value ?? []).toString();
      if (event?.event.case === 'end') throw new Error(`It ended without a word: ${command}`);
    }
    throw new Error(`It said nothing: ${command}`);
  };

  const template = await templateOf({ runtime, store });
  return {
    runtime,
    store,
    template,
    started: async (spec = {}, from = template, instance = newInstance()) => {
      await startFrom({ runtime, store }, instance, from, 'files', { ...NO_SPEC, ...spec });
      return instance;
    },
    dataDir,
    instancesDir,
    home,
    agent,
    run,
    begin,
    reopen: open,
    program: {
      write: async (instance, path, content) => {
        const client = await agent(instance).catch(() => undefined);
        await client?.files.write(path, content);
        return client !== undefined;
      },
      read: async (instance, path) => {
        const client = await agent(instance);
        return client.files.read(path).then(text, () => undefined);
      },
      remove: async (instance, path) => {
        await (await agent(instance)).filesystem.remove({ path });
      },
      listen: async (instance, port) => {
        const script = `require("net").createServer().listen(${port}, "127.0.0.1", () => console.log("listening"))`;
        await begin(instance, `exec '${process.execPath}' -e '${script}'`);
      },
    },
    kill: async (instance) => killMarked(home(instance)),
    wipe: async (instance) => {
      await killMarked(home(instance));
      await rm(join(home(instance), '..'), { recursive: true });
      await rmdir(join(home(instance), '../..')).catch(() => {});
    },
    damage: async ({ path }, how) => {
      if (how === 'missing') await rm(join(path ?? '', 'workspace'), { recursive: true });
      else await writeFile(join(path ?? '', 'workspace.json'), '{');
    },
    dispose: async () => {
      for (const client of clients) client.close();
      try {
        for (const instance of await listedInstances(runtime)) await runtime.destroy(instance, unhurried);
        await expectNothingLeft(instancesDir);
      } finally {
        await killMarked(instancesDir);
        await rm(top, { recursive: true });
      }
    },
  };
}

/** Finds processes differently than the runtime does: by the home directory in their environments. */
export async function processesKnowing(path: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const found = await Promise.all(
    pids.map(async (pid) => {
      const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
      return environment.includes(path) ? [Number(pid)] : [];
    }),
  );
  return found.flat();
}

/** Resolves when the processes are dead, and not only dying. */
async function killMarked(path: string): Promise<void> {
  const killed = new Set<number>();
  for (;;) {
    for (const pid of await processesKnowing(path)) killed.add(pid);
    for (const pid of killed) if (await isDead(pid)) killed.delete(pid);
    if (killed.size === 0) return;
    for (const pid of killed) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // The process has ended by itself.
      }
    }
    await setImmediate();
  }
}

async function isDead(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '');
  // The first thread may be dead while other threads still exit.
  const threads = await readdir(`/proc/${pid}/task`).catch(() => []);
  return stat === '' || (/\) [ZX] /.test(stat) && threads.length <= 1);
}

async function expectNothingLeft(instancesDir: string): Promise<void> {
  const processes = await processesKnowing(instancesDir);
  if (processes.length > 0) throw new Error(`Processes are left: ${processes.join(', ')}`);
  const names = (await readdir(instancesDir)).filter((name) => !['.program', '.removing'].includes(name));
  const removing = await readdir(join(instancesDir, '.removing'));
  if (names.length + removing.length > 0)
    throw new Error(`Files are left: ${[...names, ...removing].join(', ')}`);
}

export async function inodeOf(path: string): Promise<bigint> {
  return (await lstat(path, { bigint: true })).ino;
}
