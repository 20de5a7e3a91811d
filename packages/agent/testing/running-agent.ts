/** A running agent for tests, with a process and a directory of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type AgentClient, type ConnectAgentOptions, connectAgent } from '@torpor/envd';
import { bundleAgent } from '../src/bundle.ts';

export interface RunningAgent {
  /** Empty at first. The agent's root when it is confined. */
  readonly directory: string;
  readonly baseUrl: string;
  readonly pid: number;
  /** A client without an access token. */
  readonly client: AgentClient;
  connect(options: Omit<ConnectAgentOptions, 'baseUrl' | 'socketPath'>): AgentClient;
  /** Everything the agent has written to stderr. */
  readonly log: () => string;
  stop(): Promise<void>;
}

export interface RunAgentOptions {
  /** Confine the agent to its directory, as in a sandbox without isolation. */
  readonly confined?: boolean;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The script to run instead of the package's bundle. */
  readonly script?: string;
  readonly socket?: boolean;
  /** Descriptor for the agent's stdin, which is /dev/null by default. */
  readonly stdin?: number;
  /** A descriptor that the agent inherits, and its number there. */
  readonly inherited?: { readonly fd: number; readonly as: number };
}

export async function runAgent(options: RunAgentOptions = {}): Promise<RunningAgent> {
  const directory = await realpath(await mkdtemp(join(tmpdir(), 'torpor-agent-')));
  const state = await realpath(await mkdtemp(join(tmpdir(), 'torpor-state-')));
  const socketPath = join(state, 'agent.sock');
  const child = spawn(
    process.execPath,
    [
      options.script ?? join(await bundleAgent(), 'agent.mjs'),
      '--listen',
      options.socket ? `unix:${socketPath}` : '127.0.0.1:0',
      '--state-dir',
      join(state, 'state'),
      ...(options.confined ? ['--root', directory] : []),
      ...(options.args ?? []),
    ],
    {
      stdio: [options.stdin ?? 'ignore', 'ignore', 'pipe', ...beyondStderr(options.inherited)],
      env: { PATH: process.env['PATH'], ...options.env },
    },
  );
  const lines: string[] = [];
  const removeDirectories = async () => {
    for (const each of [directory, state]) await rm(each, { recursive: true, force: true });
  };
  const listen = await ready(child, lines).catch(async (error) => {
    await removeDirectories();
    throw error;
  });
  const where = options.socket ? { socketPath } : { baseUrl: `http://${listen}` };
  const clients: AgentClient[] = [];
  const connect: RunningAgent['connect'] = (more) => {
    const client = connectAgent({ ...where, ...more } as ConnectAgentOptions);
    clients.push(client);
    return client;
  };
  return {
    directory,
    baseUrl: `http://${listen}`,
    pid: child.pid as number,
    client: connect({}),
    connect,
    log: () => lines.join('\n'),
    async stop() {
      for (const client of clients) client.close();
      if (child.exitCode === null && child.kill('SIGTERM')) await once(child, 'exit');
      await removeDirectories();
    },
  };
}

function beyondStderr(inherited: RunAgentOptions['inherited']): (number | 'ignore')[] {
  if (inherited === undefined) return [];
  return [...Array<'ignore'>(inherited.as - 3).fill('ignore'), inherited.fd];
}

/** Resolves with the address in the first log line. Rejects with the log when the agent ends instead. */
function ready(child: ChildProcess, lines: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    createInterface({ input: child.stderr as NodeJS.ReadableStream }).on('line', (line) => {
      lines.push(line);
      try {
        const entry = JSON.parse(line) as { message?: string; listen?: string };
        if (entry.message === 'agent ready' && entry.listen) resolve(entry.listen);
      } catch {
        // Not a log line of the agent: for example a warning of Node.
      }
    });
    child.once('exit', (code) => reject(new Error(`the agent ended with ${code}: ${lines.join('\n')}`)));
  });
}
