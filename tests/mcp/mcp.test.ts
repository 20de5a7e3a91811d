/** The official client drives `torpor mcp`, and the endpoint `/mcp` of a server, with real agents. */
import { spawnSync } from 'node:child_process';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { type TestServer, testServer } from '@torpor/server/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { PROGRAM, startTorpor } from '../../packages/cli/testing/run-torpor.ts';
import { createKey } from '../../packages/server/src/keys/manage.ts';
import { testGateway } from '../../packages/server/testing/test-gateway.ts';

/** A machine that is busy may take a while. */
const POLL = { timeout: 10_000 };

let server: TestServer;
let url: string;
const clients: Client[] = [];
beforeAll(async () => {
  server = await testServer({ wrapApp: (ctx) => ({ gateway: testGateway(ctx) }) });
  url = await server.listen();
});
afterEach(() => Promise.all(clients.splice(0).map((client) => client.close())));
afterAll(() => server.dispose());

async function connect(...flags: string[]): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  const env = {
    ...getDefaultEnvironment(),
    HOME: '/nonexistent',
    TORPOR_URL: url,
    TORPOR_API_KEY: server.keys.default,
  };
  await client.connect(
    new StdioClientTransport({ command: process.execPath, args: [PROGRAM, 'mcp', ...flags], env }),
  );
  clients.push(client);
  return client;
}

/** The answer of a tool as an object; throws the text of an error. */
async function call(
  client: Client,
  name: string,
  args: Readonly<Record<string, unknown>> = {},
  meta: { readonly progressToken?: string } = {},
): Promise<Record<string, unknown>> {
  const result = await client.callTool({ name, arguments: { ...args }, _meta: meta });
  const [first] = result.content;
  const text = first?.type === 'text' ? first.text : '';
  if (result.isError) throw new Error(text);
  return { ...(result.structuredContent as object | undefined), text, content: result.content };
}

describe('torpor mcp over stdio', () => {
  it('lets a model work in a sandbox from its creation to its end', async () => {
    const client = await connect();
    const { id } = await call(client, 'create_sandbox', { name: 'task' });
    await call(client, 'write_file', { sandbox: 'task', path: 'notes/a.txt', content: 'one' });
    expect(await call(client, 'read_file', { sandbox: 'task', path: 'notes/a.txt' })).toMatchObject({
      text: 'one',
    });
    expect(await call(client, 'list_files', { sandbox: 'task', path: 'notes' })).toMatchObject({
      files: [{ name: 'a.txt', type: 'file', size: 3 }],
    });

    const lines: unknown[] = [];
    client.setNotificationHandler('notifications/progress', ({ params }) => void lines.push(params.message));
    const command = 'echo out; echo err >&2; exit 3';
    const ran = await call(client, 'run_command', { sandbox: 'task', command }, { progressToken: 'run' });
    expect(ran).toMatchObject({ exitCode: 3, stdout: 'out\n', stderr: 'err\n' });
    await expect.poll(() => lines, POLL).toEqual(expect.arrayContaining(['out', 'err']));
    const { process: started } = await call(client, 'run_command', {
      sandbox: 'task',
      command: 'echo ready; sleep 60',
      background: true,
    });
    await expect
      .poll(
        async () => (await call(client, 'read_logs', { sandbox: 'task', process: started }))['output'],
        POLL,
      )
      .toBe('ready\n');

    const link = await call(client, 'get_preview_link', { sandbox: 'task', port: 3000 });
    expect(link['content']).toContainEqual(
      expect.objectContaining({ type: 'resource_link', uri: link['url'], name: 'preview-3000' }),
    );

    const { checkpointId } = await call(client, 'create_snapshot', { sandbox: 'task', name: 'before' });
    await call(client, 'write_file', { sandbox: 'task', path: 'notes/a.txt', content: 'two' });
    await call(client, 'rollback_sandbox', { sandbox: 'task', checkpointId });
    expect(await call(client, 'list_checkpoints', { sandbox: 'task' })).toMatchObject({
      checkpoints: expect.arrayContaining([expect.objectContaining({ checkpointId, names: ['before'] })]),
    });

    // The client forgets `onprogress` when the result comes, and this pause takes no time.
    const phases: unknown[] = [];
    client.setNotificationHandler('notifications/progress', ({ params }) => void phases.push(params.message));
    const paused = await call(client, 'pause_sandbox', { sandbox: 'task' }, { progressToken: 'pause' });
    expect(paused).toMatchObject({ id, state: 'paused' });
    await expect.poll(() => phases, POLL).toContain('sandbox.paused');
    const { forks } = await call(client, 'fork_sandbox', { sandbox: 'task', count: 2 });
    expect(forks).toMatchObject([{ state: 'running' }, { state: 'running' }]);
    expect(await call(client, 'resume_sandbox', { sandbox: 'task' })).toMatchObject({ state: 'running' });
    expect((await call(client, 'list_sandboxes'))['sandboxes']).toHaveLength(3);
    for (const one of [{ id }, ...(forks as { id: string }[])])
      expect(await call(client, 'kill_sandbox', { sandbox: one.id })).toMatchObject({ state: 'killed' });
    expect(await call(client, 'list_sandboxes')).toMatchObject({ sandboxes: [] });
  });

  it('tells by annotations which tools read, change and destroy', async () => {
    const { tools } = await (await connect()).listTools();
    const hints = Object.fromEntries(tools.map(({ name, annotations }) => [name, annotations]));
    expect(hints['list_sandboxes']).toMatchObject({ readOnlyHint: true, destructiveHint: false });
    expect(hints['pause_sandbox']).toMatchObject({
      readOnlyHint: false,
      destructiveHint: false,
      idempotentHint: true,
    });
    expect(hints['kill_sandbox']).toMatchObject({ readOnlyHint: false, destructiveHint: true });
    expect(hints['run_command']).toMatchObject({ openWorldHint: true });
    for (const tool of tools) expect(tool.description?.length, tool.name).toBeGreaterThan(40);
  });

  it('shows only its own sandboxes, unless it is told otherwise', async () => {
    const other = await server.create();
    const client = await connect('--label', 'mine');
    expect(await call(client, 'list_sandboxes')).toMatchObject({ sandboxes: [] });
    await expect(call(client, 'kill_sandbox', { sandbox: other })).rejects.toThrow(/^not_found: /);
    const { sandboxes } = await call(await connect('--all-sandboxes'), 'list_sandboxes');
    expect(sandboxes).toContainEqual(expect.objectContaining({ id: other }));
    await server.ask('DELETE', `/v1/sandboxes/${other}`);
  });

  it('makes no more sandboxes than allowed, also by forks and by calls at once', async () => {
    const client = await connect('--label', 'few', '--max-sandboxes', '2', '--template', 'base');
    const made = await Promise.allSettled([1, 2, 3].map(() => call(client, 'create_sandbox')));
    expect(made.map(({ status }) => status).sort()).toEqual(['fulfilled', 'fulfilled', 'rejected']);
    const { sandboxes } = await call(client, 'list_sandboxes');
    const [{ id }] = sandboxes as [{ id: string }];
    await expect(call(client, 'fork_sandbox', { sandbox: id })).rejects.toThrow(/^quota_exceeded: /);
    await expect(call(client, 'create_sandbox', { template: 'other' })).rejects.toThrow(/^forbidden: /);
    for (const one of sandboxes as { id: string }[]) await call(client, 'kill_sandbox', { sandbox: one.id });
  });

  it('has no tool that changes anything when it is read-only, and wakes no sandbox', async () => {
    const id = await server.create({ metadata: { mcp: 'default' } });
    const client = await connect('--read-only');
    const { tools } = await client.listTools();
    expect(tools.every(({ annotations }) => annotations?.readOnlyHint)).toBe(true);
    expect(tools.map(({ name }) => name)).toContain('read_file');
    await server.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {} });
    await expect(call(client, 'list_files', { sandbox: id })).rejects.toThrow(/read-only/);
    expect(await call(client, 'get_sandbox', { sandbox: id })).toMatchObject({ state: 'paused' });
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
  });
});

describe('torpor mcp over HTTP', () => {
  it('works with the key of each client and refuses a client without one', async () => {
    const program = startTorpor(['mcp', '--http', '127.0.0.1:0', '--label', 'remote', '--json'], {
      env: { TORPOR_URL: url },
    });
    try {
      const [printed] = await new Promise<Buffer[]>((resolve) =>
        program.stdout?.once('data', (chunk: Buffer) => resolve([chunk])),
      );
      const endpoint = new URL((JSON.parse(String(printed)) as { url: string }).url);
      expect((await fetch(endpoint, { method: 'POST' })).status).toBe(401);
      const listed: unknown[] = [];
      for (const key of [server.keys.default, server.keys.other]) {
        const client = new Client({ name: 'test', version: '1' });
        const requestInit = { headers: { authorization: `Bearer ${key}` } };
        await client.connect(new StreamableHTTPClientTransport(endpoint, { requestInit }));
        clients.push(client);
        if (listed.length === 0) await call(client, 'create_sandbox', { name: 'remote' });
        listed.push((await call(client, 'list_sandboxes'))['sandboxes']);
      }
      expect(listed).toEqual([[expect.objectContaining({ name: 'remote' })], []]);
    } finally {
      program.kill();
    }
  });
});

describe('/mcp of the server', () => {
  async function connectTo(key: string, query = ''): Promise<Client> {
    const client = new Client({ name: 'test', version: '1' });
    const requestInit = { headers: { authorization: `Bearer ${key}` } };
    await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp${query}`), { requestInit }));
    clients.push(client);
    return client;
  }
  const post = (headers: Readonly<Record<string, string>>) =>
    fetch(`${url}/mcp`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
    });

  it('lets a model work in a sandbox, with progress and a link to a preview', async () => {
    const client = await connectTo(server.keys.default);
    await call(client, 'create_sandbox', { name: 'at-mcp' });
    await call(client, 'write_file', { sandbox: 'at-mcp', path: 'a.txt', content: 'one' });
    const lines: unknown[] = [];
    client.setNotificationHandler('notifications/progress', ({ params }) => void lines.push(params.message));
    const command = 'cat a.txt; echo; echo err >&2; exit 3';
    const ran = await call(client, 'run_command', { sandbox: 'at-mcp', command }, { progressToken: 'run' });
    expect(ran).toMatchObject({ exitCode: 3, stdout: 'one\n', stderr: 'err\n' });
    await expect.poll(() => lines, POLL).toEqual(expect.arrayContaining(['one', 'err']));
    const { url: link } = await call(client, 'get_preview_link', { sandbox: 'at-mcp', port: 3000 });
    expect(link).toMatch(/^http:\/\/3000-[a-z0-9]{20}\.sbx\.localhost/);
    const { checkpointId } = await call(client, 'create_snapshot', { sandbox: 'at-mcp' });
    await call(client, 'pause_sandbox', { sandbox: 'at-mcp' });
    const rolledBack = await call(client, 'rollback_sandbox', { sandbox: 'at-mcp', checkpointId });
    expect(rolledBack).toMatchObject({ state: 'running' });
    expect(await call(client, 'kill_sandbox', { sandbox: 'at-mcp' })).toMatchObject({ state: 'killed' });
  });

  it('shows each key the sandboxes of its own organisation, and only those with the label', async () => {
    const mine = await connectTo(server.keys.default, '?label=mine');
    const { id } = await call(mine, 'create_sandbox');
    const others = [
      await connectTo(server.keys.default, '?label=theirs'),
      await connectTo(server.keys.other, '?label=mine'),
      await connectTo(server.keys.other, '?allSandboxes=true'),
    ];
    for (const other of others) {
      expect(await call(other, 'list_sandboxes')).toMatchObject({ sandboxes: [] });
      await expect(call(other, 'kill_sandbox', { sandbox: id })).rejects.toThrow(/^not_found: /);
    }
    const all = await call(await connectTo(server.keys.default, '?allSandboxes=true'), 'list_sandboxes');
    expect(all['sandboxes']).toContainEqual(expect.objectContaining({ id }));
    await call(mine, 'kill_sandbox', { sandbox: id });
  });

  it('takes the limits of a model from the address', async () => {
    const client = await connectTo(server.keys.default, '?label=few&maxSandboxes=1&template=base');
    const { id } = await call(client, 'create_sandbox');
    await expect(call(client, 'create_sandbox')).rejects.toThrow(/^quota_exceeded: /);
    await expect(call(client, 'create_sandbox', { template: 'other' })).rejects.toThrow(/^forbidden: /);
    await call(client, 'kill_sandbox', { sandbox: id });
    const reader = await connectTo(server.keys.default, '?readOnly=true');
    expect((await reader.listTools()).tools.every(({ annotations }) => annotations?.readOnlyHint)).toBe(true);
    await expect(connectTo(server.keys.default, '?readonly=true')).rejects.toThrow(/400|readonly/);
  });

  it('gives a read-only key the tools that change nothing', async () => {
    const { key } = await createKey(server.ctx, 'default', { name: 'reader', readOnly: true });
    const id = await server.create({ metadata: { mcp: 'default' } });
    const client = await connectTo(key);
    const { tools } = await client.listTools();
    expect(tools.every(({ annotations }) => annotations?.readOnlyHint)).toBe(true);
    expect(await call(client, 'list_files', { sandbox: id })).toMatchObject({ files: expect.any(Array) });
    await expect(call(client, 'kill_sandbox', { sandbox: id })).rejects.toThrow(/kill_sandbox/);
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
  });

  it('refuses a request without a valid key, and a page of another site', async () => {
    const authorization = `Bearer ${server.keys.default}`;
    expect((await post({})).status).toBe(401);
    expect((await post({ authorization: `Bearer ${'0'.repeat(64)}` })).status).toBe(401);
    expect((await post({ authorization, origin: 'https://evil.example' })).status).toBe(403);
    expect((await post({ authorization, 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    expect((await post({ authorization })).status).toBe(200);
    expect((await post({ 'x-api-key': server.keys.default })).status).toBe(200);
  });
});

describe('a server without a client at /mcp', () => {
  it('loads nothing of MCP', () => {
    const program = `
      import { registerHooks } from 'node:module';
      const loaded = [];
      registerHooks({ resolve(name, context, next) {
        if (/^@modelcontextprotocol|^@torpor.mcp/.test(name)) loaded.push(name);
        return next(name, context);
      } });
      await import('@torpor/server');
      const before = loaded.length;
      await import('@torpor/mcp');
      console.log(JSON.stringify({ before, after: loaded.length > 0 }));
      process.exit();`;
    const options = { cwd: import.meta.dirname, encoding: 'utf8' } as const;
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], options);
    expect(JSON.parse(stdout)).toEqual({ before: 0, after: true });
  });
});

describe('/mcp of a server with little room', () => {
  it('bounds the calls of one key at once, and lets another key through', async () => {
    const small = await testServer({ settings: { streamsPerKey: 1 } });
    const address = await small.listen();
    try {
      const id = await small.create({ metadata: { mcp: 'default' } });
      const ask = (key: string, name: string, args: object) =>
        fetch(`${address}/mcp`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${key}`,
            'content-type': 'application/json',
            accept: 'application/json, text/event-stream',
          },
          body: JSON.stringify({
            jsonrpc: '2.0',
            id: 1,
            method: 'tools/call',
            params: { name, arguments: args, _meta: { progressToken: 1 } },
          }),
        });
      const command = 'echo begun; sleep 60';
      const running = await ask(small.keys.default, 'run_command', { sandbox: id, command });
      const reader = running.body?.getReader();
      await reader?.read();
      expect((await ask(small.keys.default, 'list_sandboxes', {})).status).toBe(429);
      expect((await ask(small.keys.other, 'list_sandboxes', {})).status).toBe(200);
      // A client that goes away ends its call.
      await reader?.cancel();
      await expect
        .poll(async () => (await ask(small.keys.default, 'list_sandboxes', {})).status, POLL)
        .toBe(200);
    } finally {
      await small.dispose();
    }
  });
});
