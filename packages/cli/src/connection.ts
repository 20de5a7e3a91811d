/** Finds the server and its key: from options and the environment, or from the data directory of the local server. */
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join, resolve } from 'node:path';
import type { Torpor } from '@torpor/sdk';
import { CliError } from './failure.ts';
import type { Io } from './io.ts';

export interface ConnectionOptions {
  readonly url?: string | undefined;
  readonly apiKey?: string | undefined;
  readonly dataDir?: string | undefined;
  readonly orgId?: string | undefined;
}

export interface Connection {
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly dataDir: string;
}

const DEFAULT_URL = 'http://127.0.0.1:7676';
const CONNECT_MS = 5_000;

export async function findConnection(
  { env, home, cwd }: Pick<Io, 'env' | 'home' | 'cwd'>,
  options: ConnectionOptions,
): Promise<Connection> {
  const configured = options.dataDir ?? (env['TORPOR_DATA_DIR'] || (await dataDirFromConfig(cwd)));
  const dataDir = configured === undefined ? join(home, '.torpor') : resolve(cwd, configured);
  const url = options.url ?? (env['TORPOR_URL'] || (await runningServerUrl(dataDir)) || DEFAULT_URL);
  if (!URL.canParse(url)) throw new CliError('INVALID_ARGUMENT', `"${url}" is not a valid server address.`);
  // The key of the local server is not sent to another server.
  const apiKey =
    options.apiKey ??
    (env['TORPOR_API_KEY'] || undefined) ??
    (isLocal(url) ? await storedKey(dataDir) : undefined);
  return { url: url.replace(/\/+$/, ''), apiKey, dataDir };
}

/** Checks first that the local server listens, because retries of the client would only delay the error. */
export async function openConnection(io: Io, options: ConnectionOptions): Promise<Torpor> {
  const { url, apiKey, dataDir } = await findConnection(io, options);
  if (isLocal(url)) await assertListening(url);
  if (isLocal(url) && url.startsWith('https:')) await trustLocalAuthority(dataDir);
  const { Torpor } = await import('@torpor/sdk');
  return new Torpor({ url, apiKey, orgId: options.orgId, env: io.env });
}

/** The local server's certificate is signed by an authority of its own, which is in the data directory. */
async function trustLocalAuthority(dataDir: string): Promise<void> {
  const authority = await readFile(join(dataDir, 'tls', 'ca.pem'), 'utf8').catch(() => undefined);
  if (authority === undefined) return;
  const tls = await import('node:tls');
  tls.setDefaultCACertificates([...tls.getCACertificates('default'), authority]);
}

async function assertListening(url: string): Promise<void> {
  if (!(await canConnect(new URL(url).hostname, portOf(url)))) throw notRunning(url);
}

export function portOf(url: string): number {
  const { port, protocol } = new URL(url);
  return Number(port || (protocol === 'https:' ? 443 : 80));
}

export function canConnect(hostname: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: hostname.replace(/^\[|\]$/g, ''), port, timeout: CONNECT_MS });
    const done = (reached: boolean) => {
      socket.destroy();
      resolve(reached);
    };
    socket
      .once('connect', () => done(true))
      .once('error', () => done(false))
      .once('timeout', () => done(false));
  });
}

function notRunning(url: string): CliError {
  return new CliError('NETWORK_ERROR', `Torpor is not running at ${url}. Start it with \`npm start\`.`, {
    hint: 'If it runs elsewhere, set TORPOR_URL and TORPOR_API_KEY. `torpor doctor` checks more.',
    details: { tag: 'NetworkError', url },
  });
}

/** A server that is started in this directory reads the same file. */
async function dataDirFromConfig(cwd: string): Promise<string | undefined> {
  const { dataDir } = (await readJson(join(cwd, 'torpor.config.json'))) ?? {};
  return typeof dataDir === 'string' ? dataDir : undefined;
}

/** The object in a JSON file. Undefined when the file cannot be read or holds something else. */
export async function readJson(path: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  try {
    const value: unknown = JSON.parse(await readFile(path, 'utf8'));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

/** A server that was killed leaves its file behind. Its process id shows whether it still runs. */
async function runningServerUrl(dataDir: string): Promise<string | undefined> {
  const { url, pid } = (await readJson(join(dataDir, 'server.json'))) ?? {};
  return typeof url === 'string' && (typeof pid !== 'number' || isAlive(pid)) ? url : undefined;
}

async function storedKey(dataDir: string): Promise<string | undefined> {
  const text = await readFile(join(dataDir, 'api-key'), 'utf8').catch(() => undefined);
  return text?.trim() || undefined;
}

function isLocal(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d+){3}$/.test(hostname);
}

/** A process that has ended and that its parent has not reaped yet is not alive. Only Linux shows that. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EPERM';
  }
  try {
    // The state follows the name of the program, which is in parentheses and may contain some.
    return !/\) [ZX] [^)]*$/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return true;
  }
}
