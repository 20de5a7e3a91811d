import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readdir, readFile, realpath, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { MemoryRuntime } from '@torpor/engine/testing';
import type { ProcessView } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type Host, serve } from './serve.ts';

const MAIN = join(import.meta.dirname, 'main.ts');

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-serve-'));
});
afterAll(async () => {
  // As root the runtime keeps its instances outside the data directory and leaves a link to them.
  for (const dataDir of await readdir(directory)) {
    const instances = await realpath(join(directory, dataDir, 'process')).catch(() => undefined);
    if (instances !== undefined) await rm(instances, { recursive: true, force: true });
  }
  await rm(directory, { recursive: true, force: true });
});

interface Program {
  readonly child: ChildProcess;
  readonly url: string;
  readonly lines: string[];
}

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

function launch(
  argv: string[],
  env: NodeJS.ProcessEnv = {},
  more: readonly (number | 'ignore')[] = [],
): ChildProcess {
  const child = spawn(
    process.execPath,
    [MAIN, '--port', '0', '--log-level', 'warn', '--runtime', 'process', ...argv],
    {
      cwd: directory,
      env: { PATH: process.env['PATH'], HOME: directory, TORPOR_DATA_DIR: join(directory, 'data'), ...env },
      stdio: ['ignore', 'pipe', 'pipe', ...more],
    },
  );
  children.push(child);
  return child;
}

async function started(
  env: NodeJS.ProcessEnv = {},
  more: readonly (number | 'ignore')[] = [],
): Promise<Program> {
  const child = launch([], env, more);
  const errors = text(child.stderr as NodeJS.ReadableStream as never);
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
    lines.push(line);
    const [, url] = /^torpor ready (\S+) /.exec(line) ?? [];
    if (url !== undefined) return { child, url, lines };
  }
  throw new Error(`it did not start: ${await errors}`);
}

const exit = (child: ChildProcess) => once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;

async function ended(
  argv: string[],
  env: NodeJS.ProcessEnv = {},
): Promise<{ code: number | null; said: string }> {
  const child = launch(argv, env);
  const said = text(child.stderr as NodeJS.ReadableStream as never);
  const [code] = await exit(child);
  return { code, said: await said };
}

async function ask(
  url: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<Record<string, unknown>> {
  const key = (await readFile(join(directory, 'data/api-key'), 'utf8')).trim();
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { 'x-api-key': key, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return (await response.json()) as Record<string, unknown>;
}

describe('the server program', () => {
  it('starts, prints its address, stops on a signal, and finds its sandboxes again', {
    timeout: 60_000,
  }, async () => {
    const first = await started();
    const key = (await readFile(join(directory, 'data/api-key'), 'utf8')).trim();
    expect(first.lines.join('\n')).toContain(key);
    expect(first.lines.join('\n')).toMatch(
      /^page \(this link signs in once\): http:\/\/127\.0\.0\.1:\d+\/#sign-in=[0-9a-f]{64}$/m,
    );
    expect(first.lines.at(-1)).toMatch(
      /^torpor ready http:\/\/127\.0\.0\.1:\d+ runtime=process keeps=files /,
    );
    expect(first.lines[0]).toMatch(/does not isolate/);
    expect(await ask(first.url, 'GET', '/health')).toMatchObject({ status: 'ok', runtime: 'process' });
    expect(JSON.parse(await readFile(join(directory, 'data/server.json'), 'utf8'))).toEqual({
      url: first.url,
      pid: first.child.pid,
    });

    const { ['id']: id } = await ask(first.url, 'POST', '/v1/sandboxes', {});
    const exec = (url: string, command: string) => ask(url, 'POST', `/v1/sandboxes/${id}/exec`, { command });
    expect(await exec(first.url, 'echo here > mark; cat mark')).toMatchObject({ stdout: 'here\n' });
    first.child.kill('SIGTERM');
    expect(await exit(first.child)).toEqual([0, null]);
    await expect(stat(join(directory, 'data/server.json'))).rejects.toThrow();

    const second = await started();
    expect(second.lines.join('\n')).not.toContain(key);
    expect(second.lines.join('\n')).not.toContain('#sign-in=');
    expect(await ask(second.url, 'GET', `/v1/sandboxes/${id}`)).toMatchObject({
      state: 'running',
      generation: 1,
    });
    expect(await exec(second.url, 'cat mark')).toMatchObject({ exitCode: 0, autoResumed: false });
    expect(await ask(second.url, 'POST', `/v1/sandboxes/${id}/pause`)).toMatchObject({
      sandbox: { state: 'paused' },
    });
    expect(await exec(second.url, 'cat mark')).toMatchObject({ exitCode: 0, autoResumed: true });
    expect(await ask(second.url, 'DELETE', `/v1/sandboxes/${id}`)).toMatchObject({ state: 'killed' });
    second.child.kill('SIGINT');
    expect(await exit(second.child)).toEqual([0, null]);
  });

  it('reports services and processes before and after a pause (R98)', { timeout: 60_000 }, async () => {
    const { url, child } = await started();
    const services = [{ name: 'worker', command: 'sleep 1000' }];
    const { ['id']: id } = await ask(url, 'POST', '/v1/sandboxes', { services });
    const verb = (name: string, body = {}) => ask(url, 'POST', `/v1/sandboxes/${id}/${name}`, body);
    const statuses = async () => {
      const { ['items']: items } = await ask(url, 'GET', `/v1/sandboxes/${id}/processes`);
      return (items as ProcessView[]).map(({ kind, status }) => `${kind} ${status}`);
    };
    await verb('exec', { command: 'sleep 1000', background: true });
    expect(await statuses()).toEqual(['service running', 'background running']);
    await verb('pause');
    expect(await statuses()).toEqual(['service lost', 'background lost']);
    await verb('resume');
    expect(await statuses()).toEqual(['service restarted', 'background lost']);
    await ask(url, 'DELETE', `/v1/sandboxes/${id}`);
    child.kill('SIGTERM');
    await exit(child);
  });

  it('dies at an injected fault point and loses nothing', {
    timeout: 60_000,
  }, async () => {
    const first = await started({ TORPOR_FAULTS: '1', TORPOR_FAULT: 'pause.seal-captured' });
    const { ['id']: id } = await ask(first.url, 'POST', '/v1/sandboxes', {});
    await ask(first.url, 'POST', `/v1/sandboxes/${id}/exec`, { command: 'echo kept > file' });
    const death = exit(first.child);
    await expect(ask(first.url, 'POST', `/v1/sandboxes/${id}/pause`)).rejects.toThrow();
    expect(await death).toEqual([null, 'SIGKILL']);

    const second = await started();
    const { ['state']: state } = await ask(second.url, 'GET', `/v1/sandboxes/${id}`);
    expect(['running', 'paused']).toContain(state);
    expect(await ask(second.url, 'POST', `/v1/sandboxes/${id}/exec`, { command: 'cat file' })).toMatchObject({
      stdout: 'kept\n',
    });
    await ask(second.url, 'DELETE', `/v1/sandboxes/${id}`);
    second.child.kill('SIGTERM');
    await exit(second.child);
  });

  it('does not pass its descriptors on: a sandbox has only its own three', {
    timeout: 60_000,
  }, async () => {
    const secret = await open(import.meta.filename);
    const { url, child } = await started({}, [...Array(248).fill('ignore'), secret.fd]);
    await secret.close();
    const services = [{ name: 'list', command: 'ls /proc/self/fd > listed; sleep 1000' }];
    const { ['id']: id } = await ask(url, 'POST', '/v1/sandboxes', { services });
    const command = 'while [ ! -s listed ]; do sleep 0.05; done; cat listed; ls /proc/self/fd';
    const { ['stdout']: stdout } = await ask(url, 'POST', `/v1/sandboxes/${id}/exec`, { command });
    // The fourth descriptor is the directory that `ls` reads.
    expect(stdout).toBe('0\n1\n2\n3\n0\n1\n2\n3\n');
    await ask(url, 'DELETE', `/v1/sandboxes/${id}`);
    child.kill('SIGTERM');
    await exit(child);
  });

  it('refuses a data directory that another server uses, and names that server', {
    timeout: 60_000,
  }, async () => {
    const first = await started();
    const second = await ended([]);
    expect(second).toMatchObject({ code: 1, said: expect.stringContaining(`process ${first.child.pid}`) });
    const taken = await ended(['--port', new URL(first.url).port], {
      TORPOR_DATA_DIR: join(directory, 'other'),
    });
    expect(taken).toMatchObject({ code: 1, said: expect.stringContaining('is taken') });
    first.child.kill('SIGTERM');
    await exit(first.child);
  });
});

/** A host that only records calls. */
function recordingHost() {
  const exited: number[] = [];
  const printed: string[] = [];
  const complained: string[] = [];
  const said = Promise.withResolvers<void>();
  const asked = { stop: () => {} };
  const host: Host = {
    print: (line) => {
      printed.push(line);
      if (line === 'try:') said.resolve();
    },
    printError: (line) => void complained.push(line),
    onStop: (callback) => {
      asked.stop = callback;
    },
    onFault: () => {},
    exitNow: (code) => void exited.push(code),
    killSelf: () => {},
  };
  return { host, exited, printed, complained, asked, ready: said.promise };
}

describe('a server that cannot start', () => {
  it.each([
    [['--host', '0.0.0.0'], {}, 10, 'TORPOR_API_KEY'],
    [['--nonsense'], {}, 10, '--nonsense'],
    [['--database', 'postgres://127.0.0.1:1/none'], {}, 14, ''],
  ])('exits with a code and a message: %j', async (argv, env, code, sentence) => {
    const { host, complained } = recordingHost();
    const more = ['--port', '0', '--log-level', 'silent', '--data-dir', join(directory, 'refused')];
    expect(await serve([...more, ...argv], { HOME: directory, ...env }, host)).toBe(code);
    expect(complained.join('\n')).toContain(sentence);
    expect(complained).toHaveLength(2);
  });
});

describe('a second stop signal', () => {
  it('ends the process at once', async () => {
    const { host, exited, printed, asked, ready } = recordingHost();
    const argv = ['--port', '0', '--log-level', 'silent', '--data-dir', join(directory, 'second')];
    const runtime = new MemoryRuntime();
    const served = serve(argv, {}, host, async () => ({ runtime, limits: [] }));
    await ready;
    expect(printed.find((line) => line.startsWith('torpor ready'))).toContain(
      'runtime=memory keeps=memory+files',
    );
    asked.stop();
    expect(exited).toEqual([]);
    asked.stop();
    expect(exited).toEqual([1]);
    expect(await served).toBe(0);
  });
});
