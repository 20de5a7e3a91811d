/** A real server for programs that find it by the environment; nothing of theirs is left when it is gone. */
import type { Torpor } from '@torpor/sdk';
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
  const { torpor } = server;
  return {
    torpor,
    env: { TORPOR_URL: torpor.url, TORPOR_API_KEY: API_KEY },
    replace: async () => {
      await server.kill('SIGKILL');
      server = await start();
      return server.torpor.url;
    },
    dispose: async () => {
      await server.end();
      await dataDir.remove();
    },
  };
}
