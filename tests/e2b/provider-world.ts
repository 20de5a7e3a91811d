/**
 * The `e2b` runtime with a second Torpor as its provider, for the contract suite. Accidents are calls to the provider that
 * bypass the runtime.
 */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { openDirectoryStore } from '@torpor/checkpoint-store';
import { type Instance, systemClock } from '@torpor/engine';
import { listedInstances, type RuntimeUnderTest, unhurried } from '@torpor/engine/testing';
import { type AgentClient, connectAgent } from '@torpor/envd';
import { e2bRuntime, type OpenedE2bRuntime } from '@torpor/runtime-e2b';
import { Sandbox } from 'e2b';
import { type E2bServer, e2bServer, optionsOf } from './e2b-server.ts';

export interface ProviderWorld extends RuntimeUnderTest {
  /** Removes the world and its provider. */
  close(): Promise<void>;
}

/** A server that counts in memory and answers with the count. */
const COUNTER = `cd; rm -f .in .out; mkfifo .in .out; n=0
while :; do read word < .in; [ "$word" = + ] && n=$((n + 1)); echo "$n" > .out; done`;
const TAG = 'counter';

export async function providerWorld(providerRuntime: 'process' | 'gvisor'): Promise<ProviderWorld> {
  const provider = await e2bServer('http', providerRuntime);
  const dataDir = await mkdtemp(join(tmpdir(), 'torpor-at-provider-'));
  const store = await openDirectoryStore({ root: join(dataDir, 'checkpoints') });
  const options = optionsOf(provider);
  const open = () => e2bRuntime({ ...options, dataDir, clock: systemClock, report: () => {} });
  let runtime: OpenedE2bRuntime = await open();
  const clients: AgentClient[] = [];
  const agent = async (instance: Instance) => {
    const { address, token } = await runtime.agent(instance, unhurried);
    if (!('socketPath' in address)) throw new Error('The agent should be behind a socket.');
    const client = connectAgent({ socketPath: address.socketPath, accessToken: token });
    clients.push(client);
    return client;
  };
  const begin = async (instance: Instance, command: string, tag?: string) => {
    const process = { cmd: '/bin/sh', args: ['-c', command] };
    const started = (await agent(instance)).process.start({ process, stdin: false, ...(tag ? { tag } : {}) });
    for await (const { event } of started) {
      if (event?.event.case === (tag === undefined ? 'data' : 'start')) return;
      if (event?.event.case === 'end') throw new Error(`It ended without a word: ${command}`);
    }
  };
  const run = async (instance: Instance, command: string) => {
    let output = '';
    const process = { cmd: '/bin/sh', args: ['-c', command] };
    for await (const { event } of (await agent(instance)).process.start({ process, stdin: false })) {
      if (event?.event.case === 'data') output += Buffer.from(event.event.value.output.value ?? []);
    }
    return output;
  };
  const count = async (instance: Instance, word: '+' | '=') => {
    const { processes } = await (await agent(instance)).process.list({});
    if (!processes.some(({ tag }) => tag === TAG)) await begin(instance, COUNTER, TAG);
    return Number(await run(instance, `cd; until [ -p .out ]; do :; done; echo ${word} > .in; cat .out`));
  };
  const providerIdOf = async ({ sandboxId, generation }: Instance) => {
    const name = `${sandboxId.slice('sbx_'.length)}-${generation}.json`;
    const record = await readFile(join(dataDir, 'e2b', 'instances', name), 'utf8');
    return (JSON.parse(record) as { readonly providerId: string }).providerId;
  };

  return {
    get runtime() {
      return runtime;
    },
    store,
    program: {
      write: async (instance, path, content) => {
        if ((await runtime.observe(instance, unhurried)).is !== 'running') return false;
        await (await agent(instance)).files.write(path, content);
        if (runtime.capabilities().pause === 'memory') await count(instance, '+');
        return true;
      },
      read: async (instance, path) => (await agent(instance)).files.read(path).then(text, () => undefined),
      remove: async (instance, path) => {
        await (await agent(instance)).filesystem.remove({ path });
      },
      counter: (instance) => count(instance, '='),
      ...(providerRuntime === 'process'
        ? {
            listen: (instance: Instance, port: number) => {
              const script = `require("net").createServer().listen(${port}, "127.0.0.1", () => console.log("listening"))`;
              return begin(instance, `exec '${process.execPath}' -e '${script}'`);
            },
          }
        : {}),
    },
    kill: async (instance) => {
      await Sandbox.pause(await providerIdOf(instance), options);
    },
    wipe: async (instance) => {
      await Sandbox.kill(await providerIdOf(instance), options);
    },
    damages: ['missing'],
    damage: async ({ needs }) => {
      await Sandbox.kill(String(needs['paused']), options);
    },
    reopen: async () => {
      await runtime.close();
      runtime = await open();
      return runtime;
    },
    dispose: async () => {
      for (const client of clients.splice(0)) client.close();
      for (const instance of await listedInstances(runtime)) await runtime.destroy(instance, unhurried);
      await expectOnlyCheckpoints(provider, join(dataDir, 'e2b'));
    },
    close: async () => {
      await runtime.close();
      await provider.dispose();
      await rm(dataDir, { recursive: true });
    },
  };
}

/** Only sandboxes that a checkpoint of the test names may be left at the provider. */
async function expectOnlyCheckpoints(provider: E2bServer, directory: string): Promise<void> {
  if ((await readdir(join(directory, 'instances')).catch(() => [])).length > 0) {
    throw new Error('Records of instances are left.');
  }
  const checkpoints = join(directory, 'checkpoints');
  const kept = new Set<string | undefined>();
  for (const name of await readdir(checkpoints).catch(() => [])) {
    const record = JSON.parse(await readFile(join(checkpoints, name), 'utf8')) as { providerId?: string };
    kept.add(record.providerId);
  }
  const pages = Sandbox.list({ ...optionsOf(provider) });
  while (pages.hasNext) {
    for (const { sandboxId } of await pages.nextItems()) {
      if (!kept.has(sandboxId)) throw new Error(`${sandboxId} is left at the provider.`);
    }
  }
}
