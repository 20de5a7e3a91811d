/** Addresses, network, metrics and templates of a sandbox, and unsupported features. */
import assert from 'node:assert/strict';
import { type Chapter, until } from './chapter.ts';
import { visit } from './visit.ts';

const SERVER = 'require("node:http").createServer((q, r) => r.end("served " + q.url)).listen(8080)';

export const addresses: Chapter = async ({ e2b, sandbox }) => {
  const host = sandbox.getHost(8080);
  assert.match(host, new RegExp(`^8080-${sandbox.sandboxId}\\.sbx\\.localhost:\\d+$`));
  const server = await sandbox.commands.run(`node -e '${SERVER}'`, { background: true, timeoutMs: 0 });
  await until(async () => (await visit(host, '/x'))[0] === 200, 'the server answers');
  assert.deepEqual(await visit(host, '/x'), [200, 'served /x']);
  await server.kill();

  const { Sandbox } = e2b;
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of E2B's.
  const mask = { allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}' };
  const closed = await Sandbox.create({ timeoutMs: 300_000, network: mask });
  const token = closed.trafficAccessToken ?? '';
  assert.ok(token.length > 20);
  const { network: shown } = await closed.getInfo();
  assert.deepEqual([shown?.allowPublicTraffic, shown?.maskRequestHost], [false, mask.maskRequestHost]);
  await closed.kill();
};

export const network: Chapter = async ({ e2b, sandbox }) => {
  const { Sandbox, ALL_TRAFFIC } = e2b;
  await sandbox.updateNetwork({ allowInternetAccess: false });
  assert.equal((await sandbox.getInfo()).allowInternetAccess, false);
  await Sandbox.updateNetwork(sandbox.sandboxId, { allowOut: ['example.com'], denyOut: [ALL_TRAFFIC] });
  const { network: rules } = await sandbox.getInfo();
  assert.deepEqual([rules?.allowOut, rules?.denyOut], [['example.com'], [ALL_TRAFFIC]]);
  const headers = { 'api.example.com': [{ transform: { headers: { Authorization: 'Bearer hidden' } } }] };
  await sandbox.updateNetwork({ rules: headers });
  const { stdout } = await sandbox.commands.run(
    'echo "$SSL_CERT_FILE"; env; cat /proc/*/environ 2>/dev/null; true',
  );
  assert.match(stdout, /^\/etc\/ssl\/certs\/ca-certificates.crt\n/);
  assert.doesNotMatch(stdout, /hidden/);
  await sandbox.updateNetwork({});
  assert.equal((await sandbox.getInfo()).allowInternetAccess, true);
};

export const figures: Chapter = async ({ e2b, sandbox }) => {
  const [now] = await sandbox.getMetrics();
  assert.ok(now !== undefined && now.memUsed > 0 && now.memTotal > now.memUsed);
  assert.ok(now.diskTotal > now.diskUsed && now.diskUsed >= 0);
  const { cpuCount, memoryMB } = await sandbox.getInfo();
  assert.deepEqual([now.cpuCount, now.memTotal], [cpuCount, memoryMB * 2 ** 20]);
  const { stdout } = await sandbox.commands.run("nproc; awk '/^MemTotal/ { print $2 }' /proc/meminfo");
  assert.deepEqual(stdout.trim().split('\n').map(Number), [cpuCount, memoryMB * 1024]);
  assert.equal((await e2b.Sandbox.getMetrics(sandbox.sandboxId)).length, 1);
  const yesterday = new Date(Date.now() - 86_400_000);
  assert.deepEqual(await sandbox.getMetrics({ start: yesterday, end: yesterday }), []);
};

export const templates: Chapter = async ({ e2b }) => {
  const { Template, Sandbox } = e2b;
  assert.equal(await Template.exists('base'), true);
  assert.equal(await Template.exists('no-such-template'), false);
  assert.equal((await Template.getTags('base')).length, 1);
  await assert.rejects(Sandbox.create('no-such-template'), /404/);
};

/** Each fails with a message that the feature is not supported. */
export const notYet: Chapter = async ({ e2b }) => {
  const { Sandbox, Volume, Secret } = e2b;
  const refused = (thrown: unknown) => {
    assert.match(String(thrown), /501.*not supported yet/s);
    return true;
  };
  for (const ask of [
    () => Volume.create('data'),
    () => Volume.connect('data'),
    () => Volume.getInfo('data'),
    () => Volume.list(),
    () => Volume.destroy('data'),
    () => Secret.create('key', 'value'),
    () => Secret.update('key', 'value'),
    () => Secret.getInfo('key'),
    () => Secret.exists('key'),
    () => Secret.destroy('key'),
    () => Secret.list().nextItems(),
    () => Sandbox.create({ volumeMounts: { '/data': 'data' } }),
    () => Sandbox.create({ mcp: { duckduckgo: {} } }),
    () =>
      Sandbox.create({ iam: { tokens: { aws: Secret.iamToken({ audience: 'a', tokenType: 'JWT-SVID' }) } } }),
    () =>
      Sandbox.create({
        network: {
          rules: { 'api.example.com': [{ transform: { headers: { Authorization: Secret.fill('key') } } }] },
        },
      }),
  ])
    await assert.rejects(ask, refused);
  await assert.rejects(Sandbox.create({ apiKey: `e2b_${'0'.repeat(64)}` }), e2b.AuthenticationError);
};

/** A client has settings of its own, and otherwise those of the environment. */
export const clients: Chapter = async ({ e2b, sandbox }) => {
  const { E2B, Git } = e2b;
  const client = new E2B({ apiKey: process.env['E2B_API_KEY'] ?? '' });
  assert.equal((await client.Sandbox.getInfo(sandbox.sandboxId)).sandboxId, sandbox.sandboxId);
  assert.equal(await client.Template.exists('base'), true);
  await assert.rejects(client.Volume.list(), /501/);
  await assert.rejects(client.Secret.exists('key'), /501/);
  const stranger = new E2B({ apiKey: `e2b_${'0'.repeat(64)}` });
  await assert.rejects(stranger.Sandbox.create(), e2b.AuthenticationError);
  assert.equal(await new Git(sandbox.commands).getConfig('no.such'), undefined);
};
