import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type ExecReply, type SandboxId, TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { frameOf, framesOf } from '../../testing/event-frames.ts';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: string;
let id: SandboxId;
beforeAll(async () => {
  server = await testServer({ settings: { maxOutputBytes: 64 * 1024 } });
  url = await server.listen();
  id = await server.create();
});
afterAll(() => server.dispose());

const exec = (body: object, headers: Record<string, string> = {}, sandbox = id) =>
  server.ask('POST', `/v1/sandboxes/${sandbox}/exec`, { body, headers });

async function reply(body: object): Promise<ExecReply> {
  const response = await exec(body);
  expect(response.statusCode, response.body).toBe(200);
  return response.json();
}

/** Waits until a file exists. A command writes it to show that it runs. */
async function appears(name: string): Promise<string> {
  const path = join(await server.runtime.homeOf(id), name);
  while (!(await stat(path).catch(() => undefined))) await delay(20);
  return path;
}

async function isAlive(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return status !== '' && !/\) Z /.test(status);
}

async function dies(pid: number): Promise<void> {
  while (await isAlive(pid)) await delay(20);
}

describe('exec', () => {
  it("runs a command with a login shell in the sandbox's home directory", async () => {
    const home = await server.runtime.homeOf(id);
    expect(
      await reply({ command: 'shopt -q login_shell && echo login; pwd; echo oops >&2; exit 3' }),
    ).toEqual({
      exitCode: 3,
      signal: null,
      stdout: `login\n${home}\n`,
      stderr: 'oops\n',
      truncated: false,
      durationMs: expect.any(Number),
      autoResumed: false,
    });
  });

  it('accepts a directory, variables and input', async () => {
    await reply({ command: 'mkdir -p deep/er' });
    const { stdout } = await reply({
      command: 'pwd; echo "$GREETING"; cat',
      cwd: 'deep/er',
      env: { GREETING: 'hi "there" $HOME' },
      stdin: 'one\ntwo',
    });
    const home = await server.runtime.homeOf(id);
    expect(stdout).toBe(`${home}/deep/er\nhi "there" $HOME\none\ntwo`);
  });

  it('writes input that is larger than a pipe while the output is read', async () => {
    const { stdout } = await reply({ command: 'tee /dev/null | wc -c', stdin: 'x'.repeat(900_000) });
    expect(stdout.trim()).toBe('900000');
  });

  it('says which signal ended a command, as a shell does', async () => {
    expect(await reply({ command: 'kill -TERM $$' })).toMatchObject({ exitCode: 143, signal: 'SIGTERM' });
  });

  it('keeps the beginning of a long output and drops the rest, so that the command ends', async () => {
    const { stdout, stderr, truncated, exitCode } = await reply({
      command: 'head -c 5000000 /dev/zero | tr "\\0" a; head -c 300000 /dev/zero | tr "\\0" b >&2; exit 4',
    });
    expect({ out: stdout.length, err: stderr.length, truncated, exitCode }).toEqual({
      out: 64 * 1024,
      err: 64 * 1024,
      truncated: true,
      exitCode: 4,
    });
  });

  it('kills a command at its timeout and returns its output so far', async () => {
    const response = await exec({
      command: 'echo $$; echo partly >&2; sleep 1000 & wait',
      timeoutSeconds: 1,
    });
    expect(response.statusCode).toBe(504);
    const { code, sandboxId, details } = errorIn(response);
    expect({ code, sandboxId, details }).toEqual({
      code: 'timeout',
      sandboxId: id,
      details: {
        stdout: expect.stringMatching(/^\d+\n$/),
        stderr: 'partly\n',
        durationMs: expect.any(Number),
        autoResumed: false,
      },
    });
    await dies(Number(details?.['stdout']));
  });

  it('wakes a paused sandbox and says so (R109)', async () => {
    const sleeper = await server.create();
    await server.ask('POST', `/v1/sandboxes/${sleeper}/pause`);
    expect((await exec({ command: 'echo awake' }, {}, sleeper)).json()).toMatchObject({
      exitCode: 0,
      stdout: 'awake\n',
      autoResumed: true,
    });
    expect((await exec({ command: 'true' }, {}, sleeper)).json()).toMatchObject({ autoResumed: false });
  });

  it('wakes the sandbox once for many concurrent requests', async () => {
    const sleeper = await server.create();
    await server.ask('POST', `/v1/sandboxes/${sleeper}/pause`);
    const replies = await Promise.all(
      Array.from({ length: 5 }, () => exec({ command: 'echo hi' }, {}, sleeper)),
    );
    expect(replies.map((one) => one.json().stdout)).toEqual(Array(5).fill('hi\n'));
    expect((await server.ask('GET', `/v1/sandboxes/${sleeper}`)).json()).toMatchObject({ generation: 2 });
  });

  it('does not wake a sandbox whose autoResume is off', async () => {
    const sleeper = await server.create({ autoResume: false });
    await server.ask('POST', `/v1/sandboxes/${sleeper}/pause`);
    const response = await exec({ command: 'true' }, {}, sleeper);
    expect([response.statusCode, errorIn(response)]).toMatchObject([
      409,
      { code: 'conflict', hint: /autoResume/ },
    ]);
    expect((await server.ask('GET', `/v1/sandboxes/${sleeper}`)).json().state).toBe('paused');
  });

  it('keeps the sandbox awake while the command runs', async () => {
    const { leases } = server.world.engine;
    const running = exec({ command: 'touch held; while [ -e held ]; do sleep 0.05; done' });
    await appears('held');
    expect(leases.count(id)).toBe(1);
    await reply({ command: 'rm held' });
    await running;
    expect(leases.count(id)).toBe(0);
  });

  it.each([
    ['no command', {}],
    ['an empty command', { command: '' }],
    ['a NUL', { command: 'echo \u0000' }],
    ['a missing directory', { command: 'true', cwd: '/nowhere/at/all' }],
    ['an invalid variable name', { command: 'true', env: { '1A': 'x' } }],
    ['a timeout of zero', { command: 'true', timeoutSeconds: 0 }],
    ['an unknown field', { command: 'true', tty: true }],
    ['a command longer than Linux allows', { command: `# ${'é'.repeat(66_000)}` }],
  ])('refuses %s', async (_, body) => {
    const response = await exec(body);
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
  });

  it('refuses a user that the sandbox does not have, without blaming the key', async () => {
    const response = await exec({ command: 'true', user: 'mallory' });
    expect([response.statusCode, errorIn(response).code]).toEqual([403, 'forbidden']);
  });

  it('answers killed for a killed sandbox', async () => {
    const killed = await server.create();
    await server.ask('DELETE', `/v1/sandboxes/${killed}`);
    const response = await exec({ command: 'true' }, {}, killed);
    expect([response.statusCode, errorIn(response).code]).toEqual([410, 'killed']);
  });

  it('says that the sandbox cannot be reached when its agent is dead', async () => {
    const other = await server.create();
    await exec({ command: 'true' }, {}, other);
    const running = exec({ command: 'touch started; sleep 1000' }, {}, other);
    const path = join(await server.runtime.homeOf(other), 'started');
    while (!(await stat(path).catch(() => undefined))) await delay(20);
    await server.runtime.killAgent({ sandboxId: other, generation: 1 });
    const response = await running;
    expect([response.statusCode, errorIn(response)]).toMatchObject([
      503,
      { code: 'unreachable', sandboxId: other, retryable: false, details: { dispatched: true } },
    ]);
  });

  it('answers a command that a pause interrupted with a non-retryable error (R65)', async () => {
    const other = await server.create();
    const running = exec({ command: 'touch started; sleep 1000' }, {}, other);
    const path = join(await server.runtime.homeOf(other), 'started');
    while (!(await stat(path).catch(() => undefined))) await delay(20);
    await server.ask('POST', `/v1/sandboxes/${other}/pause`);
    const response = await running;
    expect([response.statusCode, errorIn(response)]).toMatchObject([
      409,
      { code: 'transitioning', sandboxId: other, retryable: false, details: { dispatched: true } },
    ]);
  });

  it('wakes a sandbox that was paused between the check and the connection', async () => {
    const other = await server.create();
    const { runtime } = server;
    const agent = runtime.agent.bind(runtime);
    runtime.agent = async () => {
      runtime.agent = agent;
      await server.ask('POST', `/v1/sandboxes/${other}/pause`);
      throw new TorporError('unreachable', 'There is no such instance.');
    };
    expect((await exec({ command: 'echo here' }, {}, other)).json()).toMatchObject({
      stdout: 'here\n',
      autoResumed: true,
    });
  });
});

describe('exec as a stream', () => {
  const accept = { accept: 'text/event-stream' };

  it('has start, output as it comes, and end', async () => {
    const response = await exec({ command: 'echo out; echo err >&2; exit 7' }, accept);
    expect(response.headers['content-type']).toContain('text/event-stream');
    expect(response.headers['x-request-id']).toMatch(/^req_/);
    const frames = response.body.trimEnd().split('\n\n').map(frameOf);
    expect(frames.slice(1).sort((a, b) => String(a.event).localeCompare(String(b.event)))).toEqual([
      { event: 'end', data: { exitCode: 7, signal: null, durationMs: expect.any(Number) } },
      { event: 'start', data: { pid: expect.any(Number), autoResumed: false } },
      { event: 'stderr', data: { data: 'err\n' } },
      { event: 'stdout', data: { data: 'out\n' } },
    ]);
    expect(frames.at(-1)?.event).toBe('end');
  });

  it('never splits a character', async () => {
    const response = await exec({ command: "printf '\\xc3'; sleep 0.1; printf '\\xa4\\xe2\\x82'" }, accept);
    const texts = response.body.match(/"data":"([^"]*)"/g);
    expect(texts?.join('')).toBe('"data":"ä""data":"\ufffd"');
  });

  it('ends with an error at the timeout', async () => {
    const response = await exec({ command: 'echo a; sleep 100', timeoutSeconds: 1 }, accept);
    const last = frameOf(response.body.trimEnd().split('\n\n').at(-1) ?? '');
    expect(last).toMatchObject({
      event: 'error',
      data: { code: 'timeout', requestId: response.headers['x-request-id'], sandboxId: id },
    });
  });

  it('is an ordinary error when the command cannot start', async () => {
    const response = await exec({ command: 'true', cwd: '/nowhere' }, accept);
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
  });

  it('kills the command when the client disconnects, and releases the sandbox', async () => {
    const leaving = new AbortController();
    const response = await fetch(`${url}/v1/sandboxes/${id}/exec`, {
      method: 'POST',
      headers: { ...accept, 'content-type': 'application/json', 'x-api-key': server.keys.default },
      body: JSON.stringify({ command: 'sleep 1000 & echo $!; wait' }),
      signal: leaving.signal,
    });
    let child = 0;
    for await (const { event, data } of framesOf(response)) {
      if (event !== 'stdout') continue;
      child = Number((data as { data: string }).data);
      break;
    }
    leaving.abort();
    await dies(child);
    while (server.world.engine.leases.count(id) > 0) await delay(20);
  });

  it('makes a command wait while the client does not read', async () => {
    const leaving = new AbortController();
    const response = await fetch(`${url}/v1/sandboxes/${id}/exec`, {
      method: 'POST',
      headers: { ...accept, 'content-type': 'application/json', 'x-api-key': server.keys.default },
      body: JSON.stringify({
        command:
          'for i in $(seq 400); do head -c 100000 /dev/zero | tr "\\0" a; echo $i > progress; done; touch finished',
      }),
      signal: leaving.signal,
    });
    expect(response.status).toBe(200);
    const progress = await appears('progress');
    let seen = -1;
    for (let now = 0; now !== seen; now = Number(await readFile(progress, 'utf8'))) {
      seen = now;
      await delay(500);
    }
    expect(seen).toBeLessThan(400);
    leaving.abort();
    while (server.world.engine.leases.count(id) > 0) await delay(20);
  });
});

describe('exec in the background', () => {
  it('answers with the process and leaves it running, with its input', async () => {
    const response = await exec({ command: 'cat > got; sleep 1000', stdin: 'input', background: true });
    expect(response.statusCode).toBe(200);
    const { jobId, process, autoResumed } = response.json();
    expect(jobId).toMatch(/^job_[a-z0-9]{20}$/);
    expect(process).toMatchObject({
      kind: 'background',
      status: 'running',
      id: jobId,
    });
    expect(autoResumed).toBe(false);
    const path = await appears('got');
    while ((await readFile(path, 'utf8')) !== 'input') await delay(20);
    expect(await isAlive(process.pid)).toBe(true);
    await reply({ command: `kill ${process.pid}` });
    while (server.world.engine.leases.count(id) > 0) await delay(20);
  });

  it('is ended by the agent at its timeout', async () => {
    const { process } = (await exec({ command: 'sleep 1000', timeoutSeconds: 1, background: true })).json();
    await dies(process.pid);
  });

  it('that cannot start is an error', async () => {
    const response = await exec({ command: 'true', cwd: '/nowhere', background: true });
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
    expect(server.world.engine.leases.count(id)).toBe(0);
  });
});
