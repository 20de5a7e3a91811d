/** A whole server in this process with both Kubernetes runtimes, on pods that are agents of this machine. */
import { type FaultPoints, noFaults } from '@torpor/engine';
import { HollowCluster } from '@torpor/pods/testing';
import { type SandboxId, Torpor } from '@torpor/sdk';
import { openLog, readConfig, startServer } from '@torpor/server';
import { vi } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';

const API_KEY = 'c0ffee42'.repeat(8);
const KINDS = ['pods', 'secrets', 'sandboxes', 'persistentvolumeclaims'] as const;

export interface HollowWorld extends AsyncDisposable {
  readonly cluster: HollowCluster;
  readonly torpor: Torpor;
  readonly apiKey: string;
  /** The names of all objects in the cluster. */
  objects(): string[];
  podOf(id: SandboxId): string;
}

export interface HollowOptions {
  readonly settings?: readonly string[];
  readonly faults?: FaultPoints;
  readonly flags?: readonly string[];
  /** Further TORPOR_KUBERNETES_… variables. */
  readonly variables?: Readonly<Record<string, string>>;
}

export async function openHollowWorld(options: HollowOptions = {}): Promise<HollowWorld> {
  const { settings = [], faults = noFaults, flags = [], variables = {} } = options;
  const cluster = new HollowCluster();
  await cluster.start();
  for (const [name, value] of Object.entries({ ...cluster.variables, ...variables })) vi.stubEnv(name, value);
  const dataDir = await makeDataDir();
  const all = ['engine.reconcileEveryMs=500ms', 'runtimes.kubernetesRequestMs=1s', ...settings];
  const config = await readConfig(
    [
      ...['--port', '0', '--data-dir', dataDir.path, '--runtime', 'kubernetes,agent-sandbox', ...flags],
      ...all.flatMap((one) => ['--set', one]),
    ],
    { TORPOR_API_KEY: API_KEY },
    dataDir.path,
  );
  const server = await startServer(config, { log: openLog({ level: 'silent' }), faults });
  return {
    cluster,
    torpor: new Torpor({ url: server.url, apiKey: API_KEY }),
    apiKey: API_KEY,
    objects: () => KINDS.flatMap((kind) => cluster.names(kind)),
    podOf: (id) => cluster.names('pods').find((name) => name.includes(id.slice(4))) ?? '',
    async [Symbol.asyncDispose]() {
      await server.stop();
      await cluster.stop();
      await dataDir.remove();
      vi.unstubAllEnvs();
    },
  };
}
