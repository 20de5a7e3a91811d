/** A whole server in this process, outside of the cluster whose pods are its sandboxes. */
import { noFaults } from '@torpor/engine';
import { Torpor } from '@torpor/sdk';
import { openLog, readConfig, startServer } from '@torpor/server';
import { vi } from 'vitest';

const API_KEY = 'c0ffee42'.repeat(8);

export interface LabServerOptions {
  /** TORPOR_KUBERNETES_… variables: `podVariables` of the cluster, and others. */
  readonly variables: Readonly<Record<string, string>>;
  readonly settings?: readonly string[];
  /** The first is the default. */
  readonly runtimes?: string;
}

export interface LabServer {
  readonly url: string;
  readonly apiKey: string;
  readonly torpor: Torpor;
  stop(): Promise<void>;
}

export async function startLabServer(dataDir: string, options: LabServerOptions): Promise<LabServer> {
  const { variables, settings = [], runtimes = 'kubernetes,agent-sandbox' } = options;
  for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value);
  const argv = ['--port', '0', '--data-dir', dataDir, '--runtime', runtimes];
  const all = [...argv, ...settings.flatMap((one) => ['--set', one])];
  const config = await readConfig(all, { TORPOR_API_KEY: API_KEY }, dataDir);
  const server = await startServer(config, { log: openLog({ level: 'silent' }), faults: noFaults });
  return {
    url: server.url,
    apiKey: API_KEY,
    torpor: new Torpor({ url: server.url, apiKey: API_KEY }),
    stop: async () => {
      await server.stop();
      for (const name of Object.keys(variables)) vi.stubEnv(name, undefined);
    },
  };
}
