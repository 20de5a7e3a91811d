/** Runs a real server in a process of its own, which a test can kill. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Torpor } from '@torpor/sdk';

const API_KEY = 'c0ffee42'.repeat(8);
const BIN = join(import.meta.dirname, '../../packages/cli/bin/torpor.mjs');

export interface TorporProcess {
  readonly torpor: Torpor;
  readonly url: string;
  readonly apiKey: string;
  readonly pid: number;
  /** Resolves with the signal or exit code of the process. */
  readonly ended: Promise<NodeJS.Signals | number | null>;
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Kills all sandboxes and stops the server. */
  end(): Promise<void>;
}

/** Resolves when the server prints that it is ready. `program` runs the CLI: Node, with flags or in other surroundings. */
export async function startTorpor(
  dataDir: string,
  env: Record<string, string> = {},
  runtime: 'process' | 'gvisor' | 'e2b' | 'kubernetes' | 'agent-sandbox' = 'process',
  flags: readonly string[] = [],
  program: readonly [string, ...string[]] = [process.execPath],
): Promise<TorporProcess> {
  const apiKey = env['TORPOR_API_KEY'] ?? API_KEY;
  const [command, ...args] = program;
  const child = spawn(
    command,
    [...args, BIN, 'up', '--port', '0', '--data-dir', dataDir, '--runtime', runtime, ...flags],
    {
      env: { ...process.env, ...env, TORPOR_API_KEY: apiKey },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const ended = once(child, 'exit').then(
    ([code, signal]) => (signal ?? code) as NodeJS.Signals | number | null,
  );
  const url = await untilReady(child, ended);
  const torpor = new Torpor({ url, apiKey });
  const kill = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    await ended;
  };
  return {
    torpor,
    url,
    apiKey,
    pid: child.pid ?? 0,
    ended,
    kill,
    end: async () => {
      try {
        await killSandboxes(torpor);
      } finally {
        await kill('SIGTERM');
      }
    },
  };
}

/** A server that stops leaves its sandboxes running. */
export async function killSandboxes({ sandboxes }: Torpor): Promise<void> {
  const state = ['creating', 'running', 'pausing', 'paused', 'resuming'] as const;
  for await (const { id } of sandboxes.list({ state })) await sandboxes.kill(id);
}

async function untilReady(child: ChildProcess, ended: Promise<unknown>): Promise<string> {
  const said: string[] = [];
  const ready = new Promise<string>((resolve) => {
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        said.push(line);
        const url = /^torpor ready (\S+)/.exec(line)?.[1];
        if (url !== undefined) resolve(url);
      });
    }
  });
  const url = await Promise.race([ready, ended.then(() => undefined)]);
  if (url === undefined) throw new Error(`Torpor did not start:\n${said.slice(-20).join('\n')}`);
  return url;
}

/** Makes a data directory for a test. `remove` also removes the directory that sandboxes of root have outside of it. */
export async function makeDataDir(): Promise<{ readonly path: string; remove(): Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), 'torpor-data-'));
  return {
    path,
    remove: async () => {
      const processDir = await realpath(join(path, 'process')).catch(() => path);
      await rm(processDir, { recursive: true, force: true });
      await rm(path, { recursive: true, force: true });
    },
  };
}
