/** Two nodes on one machine: whatever node a client asks, it gets the answer of the node on which the sandbox lives. */
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { openPostgres } from '@torpor/database';
import type { SandboxView } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { WebSocket } from 'ws';
import { linuxProcesses } from '../../packages/host/src/processes/linux-processes.ts';
import { type ClusterNode, type ClusterWorld, makeClusterWorld, STORE } from './cluster-world.ts';

const SERVICE = {
  name: 'web',
  command: `node -e "require('http').createServer((q,s)=>s.end(q.method+' '+q.url+' '+q.headers['x-forwarded-port'])).listen(process.env.PORT)"`,
  port: 3000,
};

const LEASE_MS = 4_000;
const postgres = inject('postgresUrl');

describe.skipIf(postgres === null)(`two nodes with a store in ${STORE}`, () => {
  let world: ClusterWorld;
  /** The node on which the sandbox lives, and the other one. */
  let home: ClusterNode;
  let other: ClusterNode;
  let sandbox: SandboxView;
  let key: { readonly 'x-api-key': string };

  beforeAll(async () => {
    world = await makeClusterWorld(postgres ?? '', {
      settings: [`engine.nodeLeaseMs=${LEASE_MS}ms`, 'engine.nodeStopMs=1s'],
    });
    const a = await world.start('a');
    const b = await world.start('b');
    sandbox = await a.torpor.sandboxes.create({ services: [SERVICE] });
    const [row] = await world.query<{ node: string }>('SELECT node FROM sandboxes WHERE id = $1', [
      sandbox.id,
    ]);
    [home, other] = row?.node === 'a' ? [a, b] : [b, a];
    key = { 'x-api-key': other.apiKey };
  }, 90_000);
  afterAll(() => world?.[Symbol.asyncDispose](), 90_000);

  const ask = (node: ClusterNode, path: string, headers: Record<string, string> = {}, method = 'GET') =>
    new Promise<{ status: number; text: string; headers: IncomingMessage['headers'] }>((resolve, reject) => {
      const outgoing = httpRequest({
        host: '127.0.0.1',
        port: node.port,
        path,
        method,
        headers,
        agent: false,
      });
      outgoing.on('error', reject).on('response', (response) => {
        text(response).then(
          (body) => resolve({ status: response.statusCode ?? 0, text: body, headers: response.headers }),
          reject,
        );
      });
      outgoing.end();
    });

  it('answer for each other’s sandboxes: state, commands, files and lists', async () => {
    const { sandboxes } = other.torpor;
    expect(await sandboxes.get(sandbox.id)).toMatchObject({
      id: sandbox.id,
      state: 'running',
      evidence: 'running',
    });
    expect(await sandboxes.exec(sandbox.id, { command: 'echo out; echo err >&2; exit 3' })).toMatchObject({
      exitCode: 3,
      stdout: 'out\n',
      stderr: 'err\n',
    });
    const files = sandboxes.files(sandbox.id);
    const content = 'x'.repeat(300_000);
    await files.write('big.txt', content);
    expect(await home.torpor.sandboxes.files(sandbox.id).readText('big.txt')).toBe(content);
    const listed: string[] = [];
    for await (const { id } of sandboxes.list()) listed.push(id);
    expect(listed).toEqual([sandbox.id]);
  });

  it('stream the output of a command while it runs', async () => {
    const stream = other.torpor.sandboxes.execStream(sandbox.id, {
      command: 'mkfifo go; echo first; cat go',
    });
    const seen: unknown[] = [];
    for await (const event of stream) {
      seen.push(event);
      // The command waits until its first output has come here.
      if (JSON.stringify(event).includes('first'))
        await home.torpor.sandboxes.exec(sandbox.id, { command: 'echo second > go' });
    }
    expect(JSON.stringify(seen)).toMatch(/first.*second/);
  });

  it('follow the events of a sandbox of the other node', async () => {
    const leaving = new AbortController();
    const types: string[] = [];
    for await (const { type } of other.torpor.sandboxes.events(sandbox.id, { signal: leaving.signal })) {
      types.push(type);
      if (type === 'sandbox.started' || types.length > 20) break;
    }
    leaving.abort();
    expect(types).toContain('sandbox.created');
  });

  it('carry a terminal over a WebSocket', async () => {
    const socket = new WebSocket(
      `ws://127.0.0.1:${other.port}/v1/sandboxes/${sandbox.id}/terminal?cols=97&rows=31`,
      {
        headers: key,
      },
    );
    await once(socket, 'open');
    let output = '';
    let exit: unknown;
    socket.on('message', (data: Buffer, isBinary) => {
      if (isBinary) output += data.toString();
      else exit = JSON.parse(data.toString()).exit ?? exit;
    });
    socket.send(Buffer.from('stty size; exit 7\n'));
    await once(socket, 'close');
    expect(output).toContain('31 97');
    expect(exit).toMatchObject({ code: 7 });
  });

  it('pass previews on: by host, by headers and by path', async () => {
    const bare = sandbox.id.replace('sbx_', '');
    const host = `3000-${bare}.sbx.localhost:${other.port}`;
    const wanted = `GET /x?y=1 ${other.port}`;
    expect(await ask(other, '/x?y=1', { host })).toMatchObject({ status: 200, text: wanted });
    const named = { 'torpor-sandbox': sandbox.id, 'torpor-port': '3000' };
    expect(await ask(other, '/x?y=1', named)).toMatchObject({ status: 200, text: wanted });
    const path = `/v1/sandboxes/${sandbox.id}/ports/3000/x?y=1`;
    expect(await ask(other, path, key)).toMatchObject({ status: 200, text: wanted });
    expect(await ask(other, path)).toMatchObject({ status: 401 });
  });

  it('speak E2B’s API for each other’s sandboxes', async () => {
    const bare = sandbox.id.replace('sbx_', '');
    const answer = await ask(other, `/sandboxes/${bare}`, key);
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.text)).toMatchObject({ sandboxID: bare, state: 'running' });
  });

  it('wake a sandbox on the other node, from the store', async () => {
    const moving = await home.torpor.sandboxes.create({});
    const { sandboxes, nodes } = home.torpor;
    await sandboxes.exec(moving.id, { command: 'echo kept > note' });
    expect(await sandboxes.pause(moving.id, { durability: 'replicated' })).toMatchObject({
      replicated: true,
    });
    const { node: slept = '' } = await sandboxes.get(moving.id);
    await nodes.cordon(slept);
    // A server remembers for a moment where the sandbox was, so the first wake may still be there.
    const wake = async () => {
      const { node } = (await sandboxes.resume(moving.id)).sandbox;
      if (node === slept) await sandboxes.pause(moving.id, { durability: 'replicated' });
      return node;
    };
    await expect.poll(wake, { timeout: 20_000 }).not.toBe(slept);
    expect((await sandboxes.exec(moving.id, { command: 'cat note' })).stdout).toBe('kept\n');
    await nodes.uncordon(slept);
    await sandboxes.kill(moving.id);
  }, 60_000);

  it('know the same tokens and sign-ins', async () => {
    const signIn = await fetch(`${home.url}/v1/page/links`, {
      method: 'POST',
      headers: { ...key, 'content-type': 'application/json' },
      body: '{}',
    });
    expect(signIn.status).toBe(201);
    const { url } = (await signIn.json()) as { url: string };
    const [link] = /[0-9a-f]{64}/.exec(url) ?? [];
    const use = () =>
      fetch(`${other.url}/v1/page/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', origin: other.url, 'sec-fetch-site': 'same-origin' },
        body: JSON.stringify({ link }),
      });
    expect((await use()).status).toBe(201);
    expect((await use()).status).toBe(401);
  });

  it('deliver turns to a sandbox of the other node', async () => {
    const session = await other.torpor.sessions.getOrSpawn('chat', {
      program: { command: 'cat', mode: 'turn' },
      spawn: false,
    });
    await session.rebind({ sandboxId: sandbox.id });
    expect(await session.send('hello')).toMatchObject({
      state: 'done',
      output: 'hello',
      sandboxId: sandbox.id,
    });
    await expect.poll(() => world.query('SELECT worked_by FROM sessions')).toEqual([{ worked_by: null }]);
    await other.torpor.sandboxes.pause(sandbox.id);
    // The sandbox wakes on its own node, although the other one delivers.
    expect(await session.send('again')).toMatchObject({ state: 'done', output: 'again' });
    expect(await world.query('SELECT node FROM sandboxes WHERE id = $1', [sandbox.id])).toEqual([
      { node: home.name },
    ]);
  }, 60_000);

  it('verify checkpoints, end jobs and show operations, whichever of them is asked', async () => {
    const { id: sandboxId } = await home.torpor.sandboxes.create();
    const { id } = await home.torpor.sandboxes.snapshot(sandboxId, { name: 'kept' });
    for (const node of [home, other]) {
      const { torpor } = node;
      expect(await torpor.checkpoints.get(id)).toMatchObject({ id, health: 'ok' });
      expect((await torpor.checkpoints.verify(id)).verifiedAt).not.toBeNull();
      // The sandbox goes on from it.
      await expect(torpor.checkpoints.delete(id)).rejects.toMatchObject({ code: 'conflict' });
      const job = await torpor.sandboxes.execInBackground(sandboxId, 'sleep 1000');
      const path = `/v1/jobs/${job.jobId}`;
      expect(JSON.parse((await ask(node, path, key)).text)).toMatchObject({ state: 'running' });
      expect((await ask(node, `${path}?graceSeconds=0`, key, 'DELETE')).status).toBe(200);
      expect(JSON.parse((await ask(node, path, key)).text)).not.toMatchObject({ state: 'running' });
      const [last] = JSON.parse((await ask(node, `/v1/operations?sandboxId=${sandboxId}`, key)).text).items;
      const operation = JSON.parse((await ask(node, `/v1/operations/${last.id}`, key)).text);
      expect(operation).toMatchObject({ id: last.id, outcome: 'succeeded' });
    }
    await other.torpor.sandboxes.kill(sandboxId);
  }, 60_000);

  it('refuse the header of a hop, and calls between nodes, from a client with a valid key', async () => {
    const forged = `v1 a b ${Date.now()} ${'0'.repeat(32)} 1 6.6.6.6 https 443 ${'0'.repeat(64)}`;
    for (const node of [home, other]) {
      const answer = await ask(node, `/v1/sandboxes/${sandbox.id}`, { ...key, 'torpor-hop': forged });
      expect(answer.status).toBe(403);
      expect(JSON.parse(answer.text)).toMatchObject({ error: { details: { why: 'wrong_secret' } } });
    }
    const internal = `/v1/cluster/sandboxes/${sandbox.id}/resume?org=default`;
    expect(await ask(other, internal, key, 'POST')).toMatchObject({ status: 404 });
    expect(await ask(other, '/v1/cluster/engine/kill', key, 'POST')).toMatchObject({ status: 404 });
    const upload = `/v1/cluster/template-files/${'a'.repeat(64)}?org=default`;
    expect(await ask(other, upload, key)).toMatchObject({ status: 404 });
  });

  it('keep their leases while all their transactions wait for what a cut-off server has locked', async () => {
    const leases = () =>
      world.query<{ name: string; held_since: string; lease_until: string }>(
        'SELECT name, held_since, lease_until FROM nodes ORDER BY name',
      );
    const before = await leases();
    const another = await openPostgres({ url: world.databaseUrl });
    const [locked, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const locking = another.transaction(async (tx) => {
      await tx.query('SELECT position FROM ledger_head FOR UPDATE');
      locked.resolve();
      await released.promise;
    });
    await locked.promise;
    // More than the connections that a server has for transactions.
    const waiting = Array.from({ length: 8 }, () => home.torpor.sandboxes.setTimeout(sandbox.id, null));
    const made = [home, other].map(({ torpor }) => torpor.sandboxes.create({}));
    for (const one of [...waiting, ...made]) one.catch(() => {});
    const isRenewed = async () => {
      const now = await leases();
      const first = Math.max(...before.map(({ lease_until }) => Number(lease_until)));
      return now.every(({ lease_until }) => Number(lease_until) > first + LEASE_MS);
    };
    await expect.poll(isRenewed, { timeout: 20_000, interval: 200 }).toBe(true);
    released.resolve();
    await locking;
    await Promise.all(waiting);
    for (const { id } of await Promise.all(made)) await other.torpor.sandboxes.kill(id);
    expect((await leases()).map(({ held_since }) => held_since)).toEqual(
      before.map(({ held_since }) => held_since),
    );
    await another.close();
  }, 60_000);

  it('do not let a node with another cluster secret in, and change nothing', async () => {
    const starting = world.start('c', { env: { TORPOR_CLUSTER_SECRET: 'f'.repeat(64) } });
    await expect(starting).rejects.toThrow(/TORPOR_CLUSTER_SECRET is not the secret of the nodes/);
    expect(await world.query('SELECT name FROM nodes ORDER BY name')).toEqual([{ name: 'a' }, { name: 'b' }]);
  });

  it('end the sandboxes of a node whose server was killed, before its lease ends; the other node names it', async () => {
    const processes = async () =>
      Promise.all(
        (await linuxProcesses.all())
          .filter(({ state }) => state !== 'dead')
          .map(async (one) =>
            (await linuxProcesses.torporVariables(one)).includes(`TORPOR_SANDBOX=${sandbox.id}`),
          ),
      ).then((found) => found.filter(Boolean).length);
    expect(await processes()).toBeGreaterThan(0);
    await home.kill('SIGKILL');
    await expect.poll(processes, { timeout: 15_000 }).toBe(0);
    const refusal = async () => {
      const { status, text: body } = await ask(other, `/v1/sandboxes/${sandbox.id}`, key);
      return { status, node: JSON.parse(body).error?.details?.node };
    };
    await expect.poll(refusal, { timeout: 15_000 }).toEqual({ status: 503, node: home.name });
  }, 60_000);

  it('take a node back that starts again on its data directory', async () => {
    // The other node ends the connections of a node when it fences it, also those of a start at that very moment. Then a
    // supervisor starts the server again.
    const back = await world.start(home.name).catch(() => world.start(home.name));
    const answers = async () => (await ask(other, `/v1/sandboxes/${sandbox.id}`, key)).status;
    await expect.poll(answers, { timeout: 15_000 }).toBe(200);
    expect((await ask(back, `/v1/sandboxes/${sandbox.id}`, key)).status).toBe(200);
  }, 60_000);
});
