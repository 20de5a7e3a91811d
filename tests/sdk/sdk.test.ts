import { ConflictError, type EventView, gatewayErrorOf, PortClosedError, Sandbox, Torpor } from '@torpor/sdk';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { killSandboxes } from '../crash/torpor-process.ts';
import { type BreakableWay, breakableWay } from './breakable-way.ts';
import { type RealServer, realServer } from './real-server.ts';

let server: RealServer;
let way: BreakableWay;
let torpor: Torpor;
beforeAll(async () => {
  server = await realServer();
  way = await breakableWay(server.torpor.url);
  torpor = new Torpor({ url: way.url, apiKey: server.env.TORPOR_API_KEY });
}, 60_000);
beforeEach(() => killSandboxes(torpor));
afterAll(async () => {
  await way?.close();
  await server?.dispose();
});

async function alive(): Promise<Sandbox[]> {
  const found: Sandbox[] = [];
  for await (const sandbox of Sandbox.list({ state: ['creating', 'running', 'paused'] }, { torpor })) {
    found.push(sandbox);
  }
  return found;
}

describe('the SDK and a real server', { timeout: 120_000 }, () => {
  it('make one sandbox when the answer to a create is lost', async () => {
    way.loseNextAnswer();
    const made = await Sandbox.create({ name: 'once' }, { torpor });
    expect((await alive()).map(({ id }) => id)).toEqual([made.id]);
  });

  it('give everybody the same sandbox who comes at once, and a new one when it is killed', async () => {
    const getOrCreate = () => Sandbox.getOrCreate('shared', {}, { torpor });
    const all = await Promise.all(Array.from({ length: 10 }, getOrCreate));
    const [first] = all as [Sandbox, ...Sandbox[]];
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(all.every(({ state }) => state === 'running')).toBe(true);
    await first.pause();
    expect(await getOrCreate()).toMatchObject({ id: first.id, state: 'paused' });
    const killing = first.kill();
    const next = await getOrCreate();
    await killing;
    expect(next.id).not.toBe(first.id);
    expect(next.state).toBe('running');
  });

  it('follow a sandbox over a killed server, and miss and repeat nothing', async () => {
    const sandbox = await Sandbox.create({}, { torpor });
    const seen: EventView[] = [];
    const following = (async () => {
      // A server may take longer to come back than a read is worth.
      for await (const event of sandbox.events({ retries: 60 })) {
        seen.push(event);
        if (event.type === 'sandbox.killed') return;
      }
    })();
    await sandbox.pause();
    way.leadTo(await server.replace());
    await sandbox.resume();
    await sandbox.kill();
    await following;
    expect(seen.map(({ seq }) => seq)).toEqual(seen.map((_, index) => index + 1));
    expect(seen.map(({ type }) => type)).toEqual(
      expect.arrayContaining(['sandbox.created', 'sandbox.paused', 'sandbox.resumed', 'sandbox.killed']),
    );
  });

  it('wait for a state, also one that a command leaves again at once', async () => {
    const sandbox = await Sandbox.create({}, { torpor });
    const paused = sandbox.waitFor('paused');
    await sandbox.pause();
    await paused;
    const running = sandbox.waitFor('running');
    expect((await sandbox.exec('true')).autoResumed).toBe(true);
    expect((await running).state).toBe('running');
    await sandbox.kill();
    await expect(sandbox.waitFor('paused')).rejects.toMatchObject({ code: 'killed', sandboxId: sandbox.id });
  });

  it('run commands, keep files, and bring them back', async () => {
    const sandbox = await Sandbox.create({}, { torpor });
    await sandbox.files.write('notes/a', 'first');
    const checkpoint = await sandbox.snapshot({ name: 'first' });
    await sandbox.files.write('notes/a', 'second');
    await sandbox.rollback(checkpoint);
    expect(await sandbox.files.readText('notes/a')).toBe('first');
    expect((await sandbox.files.list('notes')).entries.map(({ name }) => name)).toEqual(['a']);
    let said = '';
    for await (const event of sandbox.exec('echo one; echo two >&2; exit 3')) {
      if (event.type === 'stdout' || event.type === 'stderr') said += event.data;
      if (event.type === 'end') said += event.exitCode;
    }
    expect(said).toMatch(/^(?:one\ntwo\n|two\none\n)3$/);
    const names: string[] = [];
    for await (const { names: some } of sandbox.checkpoints()) names.push(...some);
    expect(names).toContain('first');
    const kinds: string[] = [];
    for await (const { kind } of sandbox.operations()) kinds.push(kind);
    expect(kinds).toEqual(['rollback', 'snapshot', 'create']);
  });

  it('reach a server inside, which sees its own credentials and none of ours', async () => {
    const echo = `
      require("node:http").createServer(async (request, response) => {
        let body = "";
        for await (const piece of request) body += piece;
        const { method, url, headers } = request;
        response.end(JSON.stringify({ method, url, headers, body }));
      }).listen(process.env.PORT);`;
    const services = [{ name: 'echo', command: `exec node -e '${echo}'`, port: 3000 }];
    const sandbox = await Sandbox.create({ services }, { torpor });
    await sandbox.pause();
    const response = await sandbox.fetch(3000, 'pay?now=1', {
      method: 'POST',
      headers: { authorization: 'Bearer of-the-app' },
      body: 'ten',
    });
    const seen = (await response.json()) as { headers: Record<string, string> };
    expect(seen).toMatchObject({
      method: 'POST',
      url: '/pay?now=1',
      headers: { authorization: 'Bearer of-the-app' },
      body: 'ten',
    });
    expect(JSON.stringify(seen)).not.toContain(server.env.TORPOR_API_KEY);
    expect((await sandbox.refresh()).state).toBe('running');
    const closed = await sandbox.fetch(3001, '/', { retries: 0 });
    expect(closed.status).toBe(502);
    expect(await gatewayErrorOf(closed)).toBeInstanceOf(PortClosedError);
    expect(await closed.json()).toMatchObject({
      error: { code: 'port_closed', details: { dispatched: false } },
    });
  });

  it('send a mutation once to an app that answers in the words of the gateway (R53, R59, R65)', async () => {
    const impostor = `
      let seen = 0;
      const error = { code: "unreachable", message: "m", retryable: true, hint: "h", details: { dispatched: false } };
      require("node:http").createServer((request, response) => {
        if (request.method === "GET") return response.end(String(seen));
        seen++;
        request.resume();
        const status = Number(request.url.slice(1));
        response.writeHead(status, { "Torpor-Answered-By": "gateway", "Content-Type": "application/json" });
        response.end(JSON.stringify({ error }));
      }).listen(process.env.PORT);`;
    const services = [{ name: 'impostor', command: `exec node -e '${impostor}'`, port: 3000 }];
    const sandbox = await Sandbox.create({ services }, { torpor });
    const statuses = [421, 425, 429, 502, 503, 504];
    for (const status of statuses) {
      const response = await sandbox.fetch(3000, `/${status}`, { method: 'POST', body: 'ten' });
      expect(response.status).toBe(status);
      expect(await gatewayErrorOf(response)).toBeUndefined();
      expect(await response.json()).toMatchObject({ error: { details: { dispatched: false } } });
    }
    expect(await (await sandbox.fetch(3000, '/')).text()).toBe(String(statuses.length));
  });

  it('tell how a sandbox is and how much room it has, and let it sleep (R54)', async () => {
    const sandbox = await Sandbox.create({}, { torpor });
    expect(await sandbox.health()).toMatchObject({ state: 'running', agent: 'answers', agentError: null });
    const [root] = await sandbox.drives();
    expect(root?.path).toBe('/');
    expect(root?.usedBytes).toBeLessThanOrEqual(root?.totalBytes ?? 0);
    await sandbox.pause();
    expect(await sandbox.health()).toMatchObject({ state: 'paused', agent: 'not_running' });
    await expect(sandbox.drives()).rejects.toBeInstanceOf(ConflictError);
    expect((await sandbox.refresh()).state).toBe('paused');
  });
});
