import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { Code } from '@connectrpc/connect';
import { connectAgent, ENVD_VERSION, makeSignature } from '@torpor/envd';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';

let agent: RunningAgent;

beforeEach(async () => {
  agent = await runAgent();
});

afterEach(() => agent.stop());

const codeOf = (call: Promise<unknown>) =>
  call.then(
    () => 'ok',
    (error: { code: unknown }) => error.code,
  );

describe('the access token', () => {
  it('is required for every path but /health once it is set', async () => {
    await agent.client.init({ accessToken: 'secret' });
    await agent.client.health();
    for (const path of ['/envs', '/metrics', '/ports', '/nothing']) {
      const response = await fetch(agent.baseUrl + path);
      expect([path, response.status]).toEqual([path, 401]);
      expect(await response.json()).toMatchObject({ code: 401 });
    }
    expect(await codeOf(agent.client.process.list({}))).toBe(Code.Unauthenticated);
    expect(await codeOf(agent.client.filesystem.stat({ path: '/' }))).toBe(Code.Unauthenticated);
    expect(await codeOf(transcribe(agent.client.process.start({ process: shell('true') })))).toBe(
      Code.Unauthenticated,
    );
    const wrong = agent.connect({ accessToken: 'secreT' });
    expect(await codeOf(wrong.process.list({}))).toBe(Code.Unauthenticated);
    const right = agent.connect({ accessToken: 'secret' });
    expect((await right.process.list({})).processes).toEqual([]);
    expect(await right.envs()).toEqual({});
  });

  it('is demanded from RPC clients with a Connect error', async () => {
    await agent.client.init({ accessToken: 'secret' });
    const response = await fetch(`${agent.baseUrl}/process.Process/List`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    });
    expect([response.status, await response.json()]).toEqual([
      401,
      { code: 'unauthenticated', message: expect.any(String) },
    ]);
  });

  it('can be removed again', async () => {
    await agent.client.init({ accessToken: 'secret' });
    await agent.client.init({});
    expect(await codeOf(agent.client.envs())).toBe('unauthenticated');
    await agent.client.init({ accessToken: '' });
    expect(await agent.client.envs()).toEqual({});
  });
});

describe('a signed file URL', () => {
  const token = 'secret';
  const link = (path: string, query: Record<string, string>) =>
    `${agent.baseUrl}/files?${new URLSearchParams({ path, ...query })}`;

  beforeEach(async () => {
    await agent.client.init({ accessToken: token });
    await writeFile(join(agent.directory, 'a'), 'content');
  });

  it('allows only its operation on its file', async () => {
    const path = join(agent.directory, 'a');
    const signature = makeSignature({ path, operation: 'read' }, token);
    expect(await (await fetch(link(path, { signature }))).text()).toBe('content');
    const other = await fetch(link('/etc/passwd', { signature }));
    expect([other.status, await other.json()]).toEqual([401, { code: 401, message: 'invalid signature' }]);
    const write = await fetch(link(path, { signature }), { method: 'POST', body: 'x' });
    expect(write.status).toBe(401);
    expect((await fetch(`${agent.baseUrl}/metrics?signature=${signature}`)).status).toBe(401);
  });

  it('expires by the clock of the server', async () => {
    const path = join(agent.directory, 'a');
    const expiration = Math.floor(Date.now() / 1000) + 60;
    const signature = makeSignature({ path, operation: 'read', expiration }, token);
    const query = { signature, signature_expiration: String(expiration) };
    expect((await fetch(link(path, query))).status).toBe(200);
    await agent.client.init({ timestamp: Date.now() + 120_000 });
    const late = await fetch(link(path, query));
    expect([late.status, await late.json()]).toEqual([
      401,
      { code: 401, message: 'signature is already expired' },
    ]);
  });

  it('is named in the error when it is missing', async () => {
    const response = await fetch(link(join(agent.directory, 'a'), {}));
    expect(await response.json()).toEqual({ code: 401, message: 'missing signature query parameter' });
  });

  it('does not help a wrong token', async () => {
    const path = join(agent.directory, 'a');
    const signature = makeSignature({ path, operation: 'read' }, token);
    const response = await fetch(link(path, { signature }), { headers: { 'x-access-token': 'wrong' } });
    expect(response.status).toBe(401);
  });
});

describe('POST /init', () => {
  it('returns the tagged processes, so that the server need not list them', async () => {
    const enough = new AbortController();
    const run = async (args: string[], tag?: string) => {
      const order = { process: { cmd: '/bin/sleep', args, envs: { A: '1' } }, ...(tag ? { tag } : {}) };
      const events = agent.client.process.start(order, { signal: enough.signal });
      await events[Symbol.asyncIterator]().next();
    };
    await run(['60'], 'web');
    await run(['61']);
    const { tagged } = await agent.client.init({});
    expect(tagged).toMatchObject([
      { tag: 'web', config: { cmd: '/bin/sleep', args: ['60'], envs: { A: '1' } } },
    ]);
    const { processes } = await agent.client.process.list({});
    expect(processes).toHaveLength(2);
    expect(processes).toContainEqual(tagged[0]);
    enough.abort();
  });

  it('returns the version and sets the environment', async () => {
    const answer = await agent.client.init({ envs: { A: '1' }, hostname: 'box', sandboxId: 'sbx_1' });
    expect(answer).toMatchObject({ version: ENVD_VERSION, hostnameSet: false });
    expect(await agent.client.envs()).toEqual({ A: '1' });
    await agent.client.init({ envs: { B: '2' } });
    expect(await agent.client.envs()).toEqual({ B: '2' });
  });

  it('requires the current credential once there is one, and replaces it', async () => {
    await agent.client.init({ credential: 'first' });
    expect(await codeOf(agent.client.init({ credential: 'stolen' }))).toBe('unauthenticated');
    expect(await codeOf(agent.client.init({}, { credential: 'wrong' }))).toBe('unauthenticated');
    await agent.client.init({ credential: 'second' }, { credential: 'first' });
    expect(await codeOf(agent.client.init({}, { credential: 'first' }))).toBe('unauthenticated');
    await agent.client.init({ envs: { A: '1' } }, { credential: 'second' });
    expect(await agent.client.envs()).toEqual({ A: '1' });
  });

  it('requires no access token, because it may change the token', async () => {
    await agent.client.init({ credential: 'c', accessToken: 'old' });
    await agent.client.init({ accessToken: 'new' }, { credential: 'c' });
    expect(await agent.connect({ accessToken: 'new' }).envs()).toEqual({});
    expect(await codeOf(agent.connect({ accessToken: 'old' }).envs())).toBe('unauthenticated');
  });

  it.each(['', '[]', '{"envs":{"A":1}}', '{"accessToken":7}'])(
    'changes nothing for the body %j',
    async (body) => {
      await agent.client.init({ envs: { A: '1' } });
      const response = await fetch(`${agent.baseUrl}/init`, { method: 'POST', body });
      expect(response.status).toBe(400);
      expect(await agent.client.envs()).toEqual({ A: '1' });
    },
  );

  it('sets the working directory and user of processes', async () => {
    await agent.client.init({ defaultWorkdir: agent.directory });
    const said = await transcribe(agent.client.process.start({ process: shell('pwd') }));
    expect(said.stdout).toBe(`${agent.directory}\n`);
    expect((await agent.client.filesystem.stat({ path: '' })).entry?.path).toBe(agent.directory);
    await agent.client.init({ defaultUser: 'nosuchuser' });
    expect(await codeOf(transcribe(agent.client.process.start({ process: shell('true') })))).toBe(
      Code.Unauthenticated,
    );
  });
});

describe('a credential from the start', () => {
  it('is required at once, and appears in no child process and no log', async () => {
    const secret = await runAgent({ env: { TORPOR_AGENT_CREDENTIAL: 'from-the-start' } });
    try {
      expect(await codeOf(secret.client.init({ accessToken: 'token' }))).toBe('unauthenticated');
      await secret.client.init({ accessToken: 'very-secret' }, { credential: 'from-the-start' });
      const client = secret.connect({ accessToken: 'very-secret' });
      const said = await transcribe(client.process.start({ process: shell('env') }));
      expect(said.stdout).not.toContain('from-the-start');
      expect(secret.log()).not.toMatch(/from-the-start|very-secret/);
    } finally {
      await secret.stop();
    }
  });
});

describe('an agent with a credential', () => {
  it('refuses every client before the server has set an access token', async () => {
    const closed = await runAgent({ env: { TORPOR_AGENT_CREDENTIAL: 'c' } });
    try {
      await closed.client.health();
      expect(await codeOf(closed.client.envs())).toBe('unauthenticated');
      expect(await codeOf(closed.client.forward(80))).toBe('unauthenticated');
      expect(await codeOf(closed.client.warmUp())).toBe('unauthenticated');
      expect(await codeOf(closed.client.process.list({}))).toBe(Code.Unauthenticated);
      await closed.client.init({ credential: 'd' }, { credential: 'c' });
      expect(await codeOf(closed.client.envs())).toBe('unauthenticated');
      await closed.client.init({ accessToken: '' }, { credential: 'd' });
      expect(await codeOf(closed.client.envs())).toBe('ok');
    } finally {
      await closed.stop();
    }
  });

  it('reads the credential from a file and removes the file', async () => {
    const file = join(agent.directory, 'credential');
    await writeFile(file, 'from-a-file\n');
    const told = await runAgent({ args: ['--credential-file', file] });
    try {
      expect(existsSync(file)).toBe(false);
      expect(await codeOf(told.client.init({}))).toBe('unauthenticated');
      await told.client.init({ accessToken: 't' }, { credential: 'from-a-file' });
    } finally {
      await told.stop();
    }
  });

  it('does not start when the file does not exist', async () => {
    await expect(runAgent({ args: ['--credential-file', '/nowhere'] })).rejects.toThrow('ENOENT');
  });
});

describe('POST /forward', () => {
  it('opens a relay to a loopback port, which is not listed as a port', async () => {
    const server = createServer((_, response) => response.end('hello')).listen(0, '127.0.0.1');
    try {
      await new Promise((resolve) => server.once('listening', resolve));
      const { port } = server.address() as { port: number };
      const reached = await agent.client.forward(port);
      expect(reached).not.toBe(port);
      expect(await (await fetch(`http://127.0.0.1:${reached}/`)).text()).toBe('hello');
      expect(await agent.client.forward(port)).toBe(reached);
      const ports = (await agent.client.ports()).map((each) => each.port);
      expect(ports).toContain(port);
      expect(ports).not.toContain(reached);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  it('opens none for a closed port or the agent’s own port', async () => {
    expect(await agent.client.forward(1)).toBeNull();
    expect(await agent.client.forward(Number(new URL(agent.baseUrl).port))).toBeNull();
  });
});

describe('POST /warm-up', () => {
  it('prepares what the first calls need, and can be repeated', async () => {
    await agent.client.warmUp();
    await agent.client.warmUp();
    const said = await transcribe(agent.client.process.start({ process: shell('echo warm') }));
    expect(said.stdout).toBe('warm\n');
  });
});

describe('the agent on a unix socket', () => {
  it('serves calls and streams', async () => {
    const local = await runAgent({ socket: true });
    try {
      await local.client.health();
      const said = await transcribe(local.client.process.start({ process: shell('echo hi') }));
      expect(said.stdout).toBe('hi\n');
      await local.client.files.write(join(local.directory, 'a'), 'x');
    } finally {
      await local.stop();
    }
  });
});

describe('GET /metrics', () => {
  it('uses the field names of E2B', async () => {
    const figures = (await (await fetch(`${agent.baseUrl}/metrics`)).json()) as Record<string, number>;
    expect(Object.keys(figures)).toEqual(
      expect.arrayContaining([
        'ts',
        'cpu_count',
        'cpu_used_pct',
        'mem_used',
        'mem_total',
        'mem_cache',
        'disk_used',
        'disk_total',
      ]),
    );
    expect(figures['cpu_count']).toBeGreaterThan(0);
    expect(figures['mem_total']).toBeGreaterThan(figures['mem_used'] ?? 0);
    expect(figures['disk_total']).toBeGreaterThan(figures['disk_used'] ?? 0);
    const { ts } = await agent.client.metrics();
    expect(Math.abs(ts - Date.now() / 1000)).toBeLessThan(60);
  });
});

describe('GET /ports', () => {
  it('lists listening ports with their processes, but not the agent', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    try {
      await new Promise((resolve) => server.once('listening', resolve));
      const { port } = server.address() as { port: number };
      const ports = await agent.client.ports();
      expect(ports).toContainEqual(
        expect.objectContaining({
          port,
          address: '127.0.0.1',
          pid: process.pid,
          processName: expect.stringMatching(/^node/),
        }),
      );
      expect(ports.map((each) => each.port)).not.toContain(Number(new URL(agent.baseUrl).port));
    } finally {
      server.close();
    }
  });
});

describe('an unknown path', () => {
  it('is answered with 404, for plain calls and RPCs', async () => {
    expect((await fetch(`${agent.baseUrl}/`)).status).toBe(404);
    expect((await fetch(`${agent.baseUrl}/files`, { method: 'DELETE' })).status).toBe(404);
    const client = connectAgent({ baseUrl: agent.baseUrl });
    const response = await fetch(`${agent.baseUrl}/process.Process/Fly`, { method: 'POST' });
    expect(response.status).toBe(404);
    client.close();
  });
});
