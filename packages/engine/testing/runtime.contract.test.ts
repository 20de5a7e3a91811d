import { appendFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openDirectoryStore } from '@torpor/checkpoint-store';
import type { Runtime } from '../src/ports/runtime.ts';
import { MemoryRuntime, runtimeWithoutPause } from './memory-runtime.ts';
import { ProviderRuntime } from './provider-runtime.ts';
import { describeRuntimeContract } from './runtime-contract.ts';
import { listedInstances, type RuntimeUnderTest, unhurried } from './runtime-subject.ts';

describeRuntimeContract('memory', () => inMemory(new MemoryRuntime()));
describeRuntimeContract('memory, files only', () =>
  inMemory(new MemoryRuntime({ capabilities: { pause: 'files' } })),
);
describeRuntimeContract('memory, without pause', () => inMemory(runtimeWithoutPause()));

describeRuntimeContract('a provider’s', () => atAProvider(new ProviderRuntime()));
describeRuntimeContract('a provider’s, with snapshots', () =>
  atAProvider(new ProviderRuntime({ snapshots: true })),
);

async function atAProvider(runtime: ProviderRuntime): Promise<RuntimeUnderTest> {
  const { memoryDamages: _, ...subject } = await inMemory(runtime);
  return { ...subject, damages: ['missing'], damage: ({ id }) => runtime.lose(id) };
}

async function inMemory(runtime: MemoryRuntime): Promise<RuntimeUnderTest> {
  const directory = await mkdtemp(join(tmpdir(), 'memory-runtime-'));
  return {
    runtime,
    store: await openDirectoryStore({ root: directory }),
    program: {
      write: async ({ sandboxId }, path, text) => runtime.work(sandboxId, path, text),
      read: async ({ sandboxId }, path) => runtime.look(sandboxId)?.files[path],
      counter: async ({ sandboxId }) => runtime.look(sandboxId)?.counter ?? 0,
    },
    kill: async ({ sandboxId }) => runtime.vanish(sandboxId, false),
    wipe: async ({ sandboxId }) => runtime.vanish(sandboxId, true),
    damage: ({ path }, how) => {
      const image = join(path ?? '', 'image.json');
      return how === 'missing' ? rm(image) : writeFile(image, '{');
    },
    memoryDamages: {
      'memory.json missing': ({ path }) => rm(join(path ?? '', 'memory.json')),
      'memory.json longer': ({ path }) => appendFile(join(path ?? '', 'memory.json'), '!'),
    },
    dispose: async () => {
      const { destroy }: Runtime = runtime;
      for (const instance of await listedInstances(runtime)) await destroy.call(runtime, instance, unhurried);
      await rm(directory, { recursive: true });
    },
  };
}
