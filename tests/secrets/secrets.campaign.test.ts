import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Engine, systemClock } from '@torpor/engine';
import { type FreshDatabase, freshDatabase, unhurried } from '@torpor/engine/testing';
import { lookUpIn, type OutsideServers, outsideServers } from '@torpor/network/testing';
import { type CheckpointId, DEFAULT_ORG, type SandboxId } from '@torpor/protocol';
import { engineOn } from '@torpor/runtime-shared/testing';
import { encryptionKey, Secrets } from '@torpor/secrets';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type GvisorWorld,
  makeGvisorWorld,
  whyNoGvisor,
} from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { filesWith, memoryWith } from '../../packages/runtime-gvisor/testing/written-texts.ts';

const why = await whyNoGvisor();
const VALUE = `sk-${randomBytes(24).toString('hex')}`;
/** Is really in the sandbox, so that a search that finds nothing would be noticed. */
const MARK = `mark-${randomBytes(12).toString('hex')}`;
const caller = { org: DEFAULT_ORG };

describe.skipIf(why !== null)('a secret of a sandbox', { timeout: 180_000 }, () => {
  const names: Parameters<typeof lookUpIn>[0] = new Map();
  const reported: unknown[] = [];
  let outside: OutsideServers;
  let world: GvisorWorld;
  let fresh: FreshDatabase;
  let secrets: Secrets;
  let engine: Engine;
  let sandbox: SandboxId;

  beforeAll(async () => {
    outside = await outsideServers();
    fresh = await freshDatabase('sqlite');
    secrets = new Secrets({
      db: fresh.db,
      clock: systemClock,
      key: encryptionKey(randomBytes(32)),
      randomBytes,
    });
    world = await makeGvisorWorld({
      secrets,
      network: {
        lookUp: lookUpIn(names),
        openNetworks: [outside.network],
        serverAuthorities: [outside.authority],
      },
      report: (what, facts) => reported.push(what, facts),
    });
    engine = engineOn(world, fresh, (what, facts) => reported.push(what, facts), { secrets });
    await engine.start({ rounds: false });
    for (const [index, name] of ['api.example.com', 'other.example.com'].entries()) {
      names.set(name, [outside.address(index)]);
      for (const kind of ['https', 'http'] as const)
        await outside.serve(name, index, kind, (request, response) => {
          if (request.url === '/away')
            response.writeHead(302, { location: 'https://other.example.com/' }).end();
          else response.end(`${name} ${request.method} ${request.url}\n`);
        });
    }
    const settings = { host: 'api.example.com', header: 'Authorization', prefix: 'Bearer ' };
    await secrets.set(DEFAULT_ORG, 'API_KEY', { ...settings, value: VALUE });
    const network = { secrets: ['API_KEY'] };
    ({ id: sandbox } = (await engine.create(caller, { network, env: { MARK } })).sandbox);
    await world
      .agent(await instanceOf(sandbox))
      .then((agent) => agent.files.write('/tmp/outside.pem', outside.authority));
  }, 400_000);
  beforeEach(() => void outside.requests.splice(0));
  afterAll(async () => {
    await engine.stop();
    await world.dispose();
    await world.close();
    await fresh.dispose();
    await outside.close();
  }, 60_000);

  const instanceOf = async (sandboxId: SandboxId) => {
    const { generation } = await engine.get(DEFAULT_ORG, sandboxId);
    return { sandboxId, generation };
  };
  const run = async (command: string, id = sandbox) =>
    (await world.run(await instanceOf(id), command)).output;
  /** Which server got which value of the header. */
  const received = () =>
    outside.requests.map(({ server, request }) => [server, request.headers.authorization ?? null]);

  it('is in requests to its host, from curl, Node and everything on OpenSSL, without options', async () => {
    expect(await run('curl -sS https://api.example.com/v1 2>&1')).toBe('api.example.com GET /v1\n');
    const node = `require('https').get('https://api.example.com/n', (r) => r.pipe(process.stdout)).on('error', console.error)`;
    expect(await run(`${await world.node()} -e "${node}" 2>&1`)).toBe('api.example.com GET /n\n');
    const request = String.raw`printf 'GET /o HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n'`;
    const openssl =
      'openssl s_client -quiet -verify_return_error -connect api.example.com:443 -servername api.example.com';
    // Also without the variables: by the directory of certificates.
    const bare = `(${request}; sleep 1) | env -u SSL_CERT_FILE ${openssl} 2>/dev/null`;
    expect(await run(bare)).toContain('api.example.com GET /o');
    expect(received()).toEqual(Array(3).fill(['https api.example.com', `Bearer ${VALUE}`]));
    const counted = world.runtime.takeEgress?.() ?? [];
    expect(counted.some(({ sent, received }) => sent > 500 && received > 500)).toBe(true);
  });

  it('is not in requests to another host, which pass untouched, and not in plain HTTP', async () => {
    const header = '-H "Authorization: Bearer own"';
    expect(await run(`curl -sS --cacert /tmp/outside.pem ${header} https://other.example.com/ 2>&1`)).toBe(
      'other.example.com GET /\n',
    );
    // Without the authority of the test the connection must fail: the egress has not opened it.
    expect(await run('curl -sS https://other.example.com/ 2>&1')).toContain('certificate');
    expect(await run('curl -sS http://api.example.com/ 2>&1')).toBe('api.example.com GET /\n');
    expect(received()).toEqual([
      ['https other.example.com', 'Bearer own'],
      ['http api.example.com', null],
    ]);
  });

  it('does not go where the name in TLS, the Host and the dialled address disagree', async () => {
    const host = '-H "Host: other.example.com"';
    expect(await run(`curl -sS -o /dev/null -w '%{http_code}' ${host} https://api.example.com/ 2>&1`)).toBe(
      '421',
    );
    expect(received()).toEqual([]);
    // The address is that of the other host: the egress dials the name, and not the address.
    const elsewhere = `--connect-to api.example.com:443:${outside.address(1)}:443`;
    expect(await run(`curl -sS ${elsewhere} https://api.example.com/x 2>&1`)).toBe(
      'api.example.com GET /x\n',
    );
    expect(received()).toEqual([['https api.example.com', `Bearer ${VALUE}`]]);
    await expect
      .poll(async () =>
        (await engine.events({ sandboxId: sandbox, afterSeq: 0 }, 1_000)).map(({ data }) => data),
      )
      .toContainEqual(expect.objectContaining({ reason: 'wrong_host', name: 'api.example.com' }));
  });

  it('is not carried away by a redirect', async () => {
    expect(await run('curl -sSL --cacert /tmp/outside.pem https://api.example.com/away 2>&1')).toBe(
      'other.example.com GET /\n',
    );
    expect(received()).toEqual([
      ['https api.example.com', `Bearer ${VALUE}`],
      ['https other.example.com', null],
    ]);
  });

  it('is used after a pause and by a fork, and is nowhere in what the server has written', async () => {
    await run('curl -sS -H "Authorization: mine" https://api.example.com/before');
    // A program with the answer of a request and an open connection in its memory.
    await world.begin(
      await instanceOf(sandbox),
      `exec ${await world.node()} -e "const h = require('https'); const a = new h.Agent({ keepAlive: true }); ` +
        `h.get({ host: 'api.example.com', agent: a }, (r) => r.resume().on('end', () => console.log('open'))); setInterval(() => {}, 1000)"`,
    );
    const { sandbox: paused } = await engine.pause(caller, sandbox, { mode: 'memory' });
    const id = paused.checkpointId as CheckpointId;
    const checkpoint = { id, path: world.store.path(id) };
    expect(await memoryWith(MARK, checkpoint)).not.toEqual([]);
    expect(await memoryWith(VALUE, checkpoint)).toEqual([]);
    const { forks } = await engine.fork(caller, sandbox, {});
    const [fork] = forks;
    if (fork === undefined || !('sandbox' in fork)) throw new Error('The fork failed.');
    await engine.resume(caller, sandbox);
    outside.requests.splice(0);
    for (const each of [sandbox, fork.sandbox.id])
      expect(await run('curl -sS https://api.example.com/after 2>&1', each)).toBe(
        'api.example.com GET /after\n',
      );
    expect(received()).toEqual(Array(2).fill(['https api.example.com', `Bearer ${VALUE}`]));
    await engine.kill(caller, fork.sandbox.id);

    const insides = `cat /proc/*/environ /proc/*/cmdline; grep -rsF`;
    expect(await run(`(${insides} ${MARK} /etc /home /tmp /var) 2>/dev/null | tr '\\0' '\\n'`)).toContain(
      MARK,
    );
    const search = `${insides} "$(printf '%s%s' ${VALUE.slice(0, 20)} ${VALUE.slice(20)})" /etc /home /tmp /var`;
    expect(await run(`(${search}) 2>/dev/null | tr '\\0' '\\n'`)).not.toContain(VALUE);

    const database = dirname(fresh.path ?? '');
    expect(await readdir(database)).not.toEqual([]);
    expect(await filesWith('API_KEY', database)).not.toEqual([]);
    expect(await filesWith(VALUE, database)).toEqual([]);
    expect(await filesWith('API_KEY', world.dataDir)).not.toEqual([]);
    expect(await filesWith(VALUE, world.dataDir)).toEqual([]);
    expect(JSON.stringify(reported)).not.toContain(VALUE);
    const events = await engine.events({ sandboxId: sandbox, afterSeq: 0 }, 1_000);
    expect(events[0]?.data).toMatchObject({ secrets: ['API_KEY'] });
    expect(JSON.stringify(events)).not.toContain(VALUE);
  });

  it('can be given to a running sandbox, narrowed, and taken away', async () => {
    const { sandbox: other } = await engine.create(caller, {});
    const status = (path: string) =>
      run(`curl -sS -o /dev/null https://api.example.com${path} 2>&1`, other.id);
    expect(await status('/')).toContain('certificate');
    await engine.setNetwork(DEFAULT_ORG, other.id, {
      secrets: [{ name: 'API_KEY', methods: ['GET'], path: '/v1' }],
    });
    expect([await status('/v1/x'), await status('/v2')]).toEqual(['', '']);
    await engine.setNetwork(DEFAULT_ORG, other.id, {});
    expect(await status('/v1/x')).toContain('certificate');
    expect(received()).toEqual([
      ['https api.example.com', `Bearer ${VALUE}`],
      ['https api.example.com', null],
    ]);
    await world.runtime.destroy(await instanceOf(other.id), unhurried);
  });

  it('must exist when a sandbox names it', async () => {
    const network = { secrets: ['NO_SUCH_KEY'] };
    await expect(engine.create(caller, { network })).rejects.toMatchObject({ code: 'not_found' });
    await expect(engine.setNetwork(DEFAULT_ORG, sandbox, network)).rejects.toMatchObject({
      code: 'not_found',
    });
  });
});
