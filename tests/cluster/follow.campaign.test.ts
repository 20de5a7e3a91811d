/**
 * Sessions, builds and template builds go on when their sandbox is on another node, moves, or loses its node.
 * `npm run test:cluster`.
 */
import { request as httpRequest } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { tar } from '@torpor/host/testing';
import { afterEach, describe, expect, inject, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { requestPreview, sandboxOf, untilPaused } from '../builds/whole-build.ts';
import { type ClusterNode, type ClusterWorld, makeClusterWorld } from './cluster-world.ts';

const postgres = inject('postgresUrl');
const noGvisor = await whyNoGvisor();
const LEASE = ['engine.nodeLeaseMs=8s', 'engine.nodeStopMs=2s'];

/** Answers each turn in two parts. The second one waits for a file, and has a number that is only in memory. */
const SLOW_PROGRAM = `
n=0
while IFS= read -r line; do
  n=$((n + 1))
  turn=\${line#*'"turn":"'}
  turn=\${turn%%'"'*}
  printf '%s\\n' "$line" >> got
  printf 'begin '
  while ! [ -e "go-$n" ]; do sleep 0.1; done
  printf 'end %s\\n' "$n"
  printf '{"torpor":{"end":"%s"}}\\n' "$turn"
done
`;

describe.skipIf(postgres === null)('work whose sandbox is on another node', { timeout: 600_000 }, () => {
  let world: ClusterWorld;
  afterEach(() => world?.[Symbol.asyncDispose](), 300_000);

  const nodeOf = async (id: string) =>
    (await world.query<{ node: string }>('SELECT node FROM sandboxes WHERE id = $1', [id]))[0]?.node ?? '';

  it.skipIf(noGvisor !== null)('a turn that is being answered goes on when its sandbox moves', async () => {
    world = await makeClusterWorld(postgres ?? '', { runtime: 'gvisor', settings: LEASE });
    const nodes = [await world.start('a'), await world.start('b')];
    const waiting = () =>
      world.query("SELECT id FROM checkpoints WHERE state = 'sealed' AND replicated_at IS NULL");
    await expect.poll(waiting, { timeout: 300_000, interval: 500 }).toEqual([]);
    const [first] = nodes as [ClusterNode, ClusterNode];
    const session = await first.torpor.sessions.getOrSpawn('chat', {
      program: { command: SLOW_PROGRAM, mode: 'service' },
    });
    const id = session.sandbox?.id ?? 'sbx_none';
    const home = await nodeOf(id);
    const other = nodes.find(({ name }) => name !== home) as ClusterNode;
    // Through the node that does not have the sandbox, which then gets it.
    const asked = await other.torpor.sessions.get(session.id);
    const turn = await asked.post('one');
    const output = async () => (await asked.turn(turn.id)).output;
    await expect.poll(output, { timeout: 60_000 }).toBe('begin ');
    await other.torpor.nodes.drain(home);
    await expect.poll(() => nodeOf(id), { timeout: 120_000, interval: 500 }).toBe(other.name);
    await first.torpor.sandboxes.exec(id, 'touch go-1 go-2');
    await expect
      .poll(async () => (await asked.turn(turn.id)).state, { timeout: 120_000, interval: 500 })
      .toBe('done');
    expect(await output()).toBe('begin end 1\n');
    expect(await asked.send('two')).toMatchObject({ state: 'done', output: 'begin end 2\n' });
    expect((await first.torpor.sandboxes.exec(id, 'wc -l < got')).stdout.trim()).toBe('2');
  });

  it('a turn goes on at another node when the one that delivered it is killed, once', async () => {
    world = await makeClusterWorld(postgres ?? '', { settings: LEASE });
    const nodes = [await world.start('a'), await world.start('b'), await world.start('c')];
    const [first] = nodes as [ClusterNode];
    const session = await first.torpor.sessions.getOrSpawn('chat', {
      program: { command: SLOW_PROGRAM, mode: 'service' },
    });
    const id = session.sandbox?.id ?? 'sbx_none';
    const home = await nodeOf(id);
    const [asked, witness] = nodes.filter(({ name }) => name !== home) as [ClusterNode, ClusterNode];
    const turn = await (await asked.torpor.sessions.get(session.id)).post('one');
    const seen = await witness.torpor.sessions.get(session.id);
    await expect.poll(async () => (await seen.turn(turn.id)).output, { timeout: 60_000 }).toBe('begin ');
    await asked.kill('SIGKILL');
    await witness.torpor.sandboxes.exec(id, 'touch go-1');
    await expect
      .poll(async () => (await seen.turn(turn.id)).state, { timeout: 60_000, interval: 500 })
      .toBe('done');
    expect((await seen.turn(turn.id)).output).toBe('begin end 1\n');
    expect((await witness.torpor.sandboxes.exec(id, 'wc -l < got')).stdout.trim()).toBe('1');
  });

  it('a build is run again when its node is killed, and its preview answers at every node (R20)', async () => {
    world = await makeClusterWorld(postgres ?? '', { settings: LEASE });
    const env = {
      TORPOR_LOG_LEVEL: 'error',
      TORPOR_RUNNER: 'command',
      TORPOR_RUNNER_PLACE: 'host',
      TORPOR_RUNNER_COMMAND: `sleep 4; printf '{"scripts":{"start":"node s.js"}}' > package.json &&
        printf 'require("http").createServer((q, r) => r.end("otters")).listen(process.env.PORT)' > s.js`,
    };
    const nodes = new Map<string, ClusterNode>();
    for (const name of ['a', 'b', 'c']) nodes.set(name, await world.start(name, { env }));
    const a = nodes.get('a') as ClusterNode;
    const { job_id } = await a.torpor.builds.start({ project_id: 'notes', goal: 'a page about otters' });
    const worker = async () => {
      const [row] = await world.query<{ lease_owner: string | null }>(
        'SELECT lease_owner FROM queue_jobs WHERE id = $1',
        [job_id],
      );
      const owners = await world.query<{ node: string }>('SELECT node FROM servers WHERE id = $1', [
        row?.lease_owner ?? '',
      ]);
      return owners[0]?.node;
    };
    await expect.poll(worker, { timeout: 60_000 }).toBeDefined();
    await delay(500);
    const killed = (await worker()) ?? 'a';
    await nodes.get(killed)?.kill('SIGKILL');
    const [rest, last] = [...nodes.values()].filter(({ name }) => name !== killed) as [
      ClusterNode,
      ClusterNode,
    ];
    const types: string[] = [];
    for await (const { type, status } of rest.torpor.builds.events(job_id)) types.push(`${type} ${status}`);
    expect(types.at(-1)).toContain('ready');
    const ready = await untilPaused(rest, job_id);
    const url = ready.preview_url ?? '';
    for (const node of [rest, last]) {
      expect(await node.torpor.builds.resume(job_id)).toMatchObject({ sandbox_id: ready.sandbox_id });
      expect(await requestPreview(node, url)).toMatchObject({ status: 200, text: 'otters' });
      expect((await node.torpor.builds.snapshot(job_id)).snapshot.outcome).toBe('paused');
      expect(await node.torpor.builds.status(job_id)).toMatchObject({
        status: 'ready',
        sandbox_paused: true,
      });
      const lines: string[] = [];
      for (const line of (await node.torpor.builds.logs(job_id)).lines) lines.push(line.text);
      expect(lines.join('\n')).toContain('The application answers (200).');
    }
    // One preview, and nothing of the first attempt.
    const alive = await world.query(
      "SELECT id FROM sandboxes WHERE state NOT IN ('killed', 'failed', 'lost') AND node <> $1",
      [killed],
    );
    expect(alive).toEqual([{ id: sandboxOf(ready) }]);
  });

  it('a template build uses files that were uploaded at another node', async () => {
    world = await makeClusterWorld(postgres ?? '', { settings: LEASE });
    const [a, b] = [await world.start('a'), await world.start('b')];
    const ask = (node: ClusterNode, method: string, path: string, body?: Buffer | object) =>
      new Promise<{ status: number; body: string }>((resolve, reject) => {
        const headers = {
          'x-api-key': node.apiKey,
          'content-type': Buffer.isBuffer(body) ? 'application/octet-stream' : 'application/json',
        };
        const target = { host: '127.0.0.1', port: node.port, method, path, headers, agent: false };
        const outgoing = httpRequest(target, (response) => {
          text(response).then((said) => resolve({ status: response.statusCode ?? 0, body: said }), reject);
        });
        outgoing.on('error', reject);
        outgoing.end(body === undefined || Buffer.isBuffer(body) ? body : JSON.stringify(body));
      });
    const hash = 'f'.repeat(64);
    const made = JSON.parse((await ask(a, 'POST', '/v3/templates', { name: 'app' })).body);
    const link = JSON.parse((await ask(a, 'GET', `/templates/app/files/${hash}`)).body);
    expect(link.present).toBe(false);
    const { pathname, search } = new URL(link.url);
    const archive = tar({ name: 'hello.txt', content: 'from a' });
    expect((await ask(a, 'PUT', `${pathname}${search}`, archive)).status).toBe(200);
    expect(JSON.parse((await ask(b, 'GET', `/templates/app/files/${hash}`)).body).present).toBe(true);
    const steps = [
      { type: 'COPY', args: ['hello.txt', '/home/user/hello.txt', '', ''], filesHash: hash },
      { type: 'RUN', args: ['cp hello.txt copied.txt'] },
    ];
    const order = { fromTemplate: 'base', steps };
    const begun = await ask(b, 'POST', `/v2/templates/app/builds/${made.buildID}`, order);
    expect(begun.status).toBe(202);
    const status = async () =>
      JSON.parse((await ask(a, 'GET', `/templates/app/builds/${made.buildID}/status`)).body);
    await expect
      .poll(async () => (await status()).status, { timeout: 120_000, interval: 500 })
      .not.toBe('building');
    expect(await status()).toMatchObject({ status: 'ready' });
    const sandbox = await a.torpor.sandboxes.create({ template: 'app' });
    expect((await b.torpor.sandboxes.exec(sandbox.id, 'cat hello.txt')).stdout).toBe('from a');
  });
});
