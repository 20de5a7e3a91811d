/** A real server for programs that find it by the environment; nothing of theirs is left when it is gone. */
import { Torpor } from '@torpor/sdk';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';

export interface RealServer {
  readonly torpor: Torpor;
  /** For the environment of a program. */
  readonly env: { readonly TORPOR_URL: string; readonly TORPOR_API_KEY: string };
  /** Ends it without a word and starts another in its place, at another address. */
  replace(): Promise<string>;
  dispose(): Promise<void>;
}

const API_KEY = 'ab12cd34'.repeat(8);

export async function realServer(): Promise<RealServer> {
  const dataDir = await makeDataDir();
  const start = () => startTorpor(dataDir.path, { TORPOR_API_KEY: API_KEY });
  let server = await start();
  const connect = () => new Torpor({ url: server.torpor.url, apiKey: API_KEY });
  const torpor = connect();
  return {
    torpor,
    env: { TORPOR_URL: torpor.url, TORPOR_API_KEY: API_KEY },
    replace: async () => {
      await server.kill('SIGKILL');
      server = await start();
      return server.torpor.url;
    },
    dispose: async () => {
      await killAll(connect());
      await server.kill('SIGTERM');
      await dataDir.remove();
    },
  };
}

/** A server that stops leaves its sandboxes running. */
export async function killAll(torpor: Torpor): Promise<void> {
  const state = ['creating', 'running', 'pausing', 'paused', 'resuming'] as const;
  for await (const { id } of torpor.sandboxes.list({ state })) await torpor.sandboxes.kill(id);
}
