/** A Torpor server for programs that were written for E2B, with the environment variables by which they find it. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { request as requestTls } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const run = promisify(execFile);

export type Way = 'http' | 'tls';
export type PackageName = 'e2b' | 'e2b-old';

export interface E2bServer {
  readonly server: TorporProcess;
  /** The whole environment of such a program. */
  readonly env: Readonly<Record<string, string>>;
  /** Kills the server and starts another one with the same data directory at another address. */
  restart(): Promise<E2bServer>;
  dispose(): Promise<void>;
}

/** The template `base` as users have it. Tests are faster with the view of the host, whose /usr is read-only. */
export const OWN_BASE = { TORPOR_BASE: 'auto' } as const;

export async function e2bServer(
  way: Way,
  runtime: 'gvisor' | 'process',
  settings: Readonly<Record<string, string>> = {},
): Promise<E2bServer> {
  const dataDir = await makeDataDir();
  return start(dataDir, way, runtime, settings);
}

type DataDir = Awaited<ReturnType<typeof makeDataDir>>;

async function start(
  dataDir: DataDir,
  way: Way,
  runtime: 'gvisor' | 'process',
  settings: Readonly<Record<string, string>>,
): Promise<E2bServer> {
  const flags = way === 'tls' ? ['--tls'] : [];
  const env = { TORPOR_LOG_LEVEL: 'error', TORPOR_REGISTRY_NETWORKS: '127.0.0.1/32', ...settings };
  const server = await startTorpor(dataDir.path, env, runtime, flags);
  const { port } = new URL(server.url);
  const key = { E2B_API_KEY: `e2b_${server.apiKey}` };
  return {
    server,
    env:
      way === 'tls'
        ? {
            ...key,
            E2B_DOMAIN: `sbx.localhost:${port}`,
            NODE_EXTRA_CA_CERTS: join(dataDir.path, 'tls', 'ca.pem'),
          }
        : { ...key, E2B_API_URL: server.url, E2B_SANDBOX_URL: server.url },
    restart: async () => {
      await server.kill('SIGKILL');
      return start(dataDir, way, runtime, settings);
    },
    dispose: async () => {
      await killSandboxes(server, way === 'tls' ? join(dataDir.path, 'tls', 'ca.pem') : undefined);
      await server.kill('SIGTERM');
      await dataDir.remove();
    },
  };
}

/** Sandboxes that the server leaves running must not outlive the test. */
async function killSandboxes({ url, apiKey }: TorporProcess, authority?: string): Promise<void> {
  const ca = authority === undefined ? undefined : await readFile(authority);
  const ask = async (method: string, path: string) => {
    const send = url.startsWith('https:') ? requestTls : request;
    const sent = send(`${url}${path}`, { method, headers: { 'x-api-key': apiKey }, ...(ca ? { ca } : {}) });
    sent.end();
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    return text(answer);
  };
  const list = JSON.parse(await ask('GET', '/v2/sandboxes')) as { readonly sandboxID: string }[];
  for (const { sandboxID } of list) await ask('DELETE', `/sandboxes/${sandboxID}`);
}

const PROGRAM = join(import.meta.dirname, 'program', 'program.ts');
const RESOLVE = join(import.meta.dirname, 'resolve-localhost.ts');

/** Runs the program in a process of its own. Resolves to its completed chapters with the duration of each. */
export async function runProgram(
  { env }: Pick<E2bServer, 'env'>,
  name: PackageName,
  chapters: readonly string[] = [],
): Promise<string[]> {
  const { stdout } = await run(process.execPath, ['--import', RESOLVE, PROGRAM, name, ...chapters], {
    env: { PATH: process.env['PATH'], ...env },
    maxBuffer: 16 * 1024 * 1024,
  });
  return stdout.trim().split('\n');
}

/** Options for programs that name their server in code. */
export function optionsOf({ server: { url, apiKey } }: Pick<E2bServer, 'server'>) {
  return { apiKey: `e2b_${apiKey}`, apiUrl: url, sandboxUrl: url };
}
