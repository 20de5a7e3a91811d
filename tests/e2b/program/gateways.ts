/** Programs that E2B has in templates of its own. With templates of these names, the calls for them work. */
import assert from 'node:assert/strict';
import { type Chapter, type Package, until } from './chapter.ts';
import { visit } from './visit.ts';

const SERVER =
  'require("node:http").createServer((q, r) => r.end(q.url + " " + q.headers.authorization)).listen(50005)';

/** Takes the place of the MCP gateway: it notes how it was called, keeps its token, and answers at the gateway's port. */
const GATEWAY = `cat > /usr/local/bin/mcp-gateway <<'END'
#!/bin/sh
echo "$*" >> /var/log/mcp-gateway
[ "$1" = pull ] && exit
mkdir -p /etc/mcp-gateway
printf %s "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token
setsid node -e '${SERVER}' > /dev/null 2>&1 &
END
chmod 755 /usr/local/bin/mcp-gateway`;

const CONTAINERS = `cat > /usr/local/bin/devcontainer <<'END'
#!/bin/sh
echo "$*" >> /var/log/devcontainer
END
printf '#!/bin/sh\\necho "prepared $1"\\n' > /prepare-exec.sh
chmod 755 /usr/local/bin/devcontainer /prepare-exec.sh`;

/** Takes the place of a program that installs packages. */
const INSTALLERS = `for one in pip npm bun apt-get; do
rm -f /usr/local/bin/$one
printf '#!/bin/sh\\necho "$(id -un): %s $*" >> /var/log/installed\\n' $one > /usr/local/bin/$one
chmod 755 /usr/local/bin/$one
done
touch /var/log/installed && chmod 666 /var/log/installed`;

export const gateways: Chapter = async ({ e2b }) => {
  const { Template, Sandbox } = e2b;
  await Template.build(Template().fromBaseImage().runCmd(GATEWAY, { user: 'root' }), 'mcp-gateway');
  await Template.build(Template().fromTemplate('mcp-gateway').addMcpServer(['exa']), 'mcp-gateway:exa');
  const sandbox = await Sandbox.create('mcp-gateway:exa', {
    timeoutMs: 300_000,
    mcp: { exa: { apiKey: 'k' } },
  });
  const url = `https://${sandbox.getHost(50_005)}/mcp`;
  assert.equal(sandbox.getMcpUrl(), url);
  const token = (await sandbox.getMcpToken()) ?? '';
  assert.ok(token.length > 20);
  assert.equal(await (await Sandbox.connect(sandbox.sandboxId)).getMcpToken(), token);
  const log = await sandbox.files.read('/var/log/mcp-gateway');
  assert.equal(log, 'pull exa\n--config {"exa":{"apiKey":"k"}}\n');
  const ask = () => visit(new URL(url).host, '/mcp', { authorization: `Bearer ${token}` });
  await until(async () => (await ask())[0] === 200, 'the gateway answers');
  assert.deepEqual(await ask(), [200, `/mcp Bearer ${token}`]);
  await sandbox.kill();

  await Template.build(Template().fromBaseImage().runCmd(CONTAINERS, { user: 'root' }), 'devcontainer');
  const container = Template().fromTemplate('devcontainer').betaDevContainerPrebuild('/srv');
  await Template.build(container.betaSetDevContainerStart('/srv'), 'contained');
  const contained = await Sandbox.create('contained', { timeoutMs: 300_000 });
  assert.equal(await contained.files.read('/devcontainer.sh'), 'prepared /srv\n');
  assert.equal(
    await contained.files.read('/var/log/devcontainer'),
    'build --workspace-folder /srv\nup --workspace-folder /srv\n',
  );
  await contained.kill();
  for (const name of ['mcp-gateway:exa', 'mcp-gateway', 'devcontainer', 'contained'])
    await Sandbox.deleteSnapshot(name);
};

/** The steps for packages run the installers of the base. */
export const installers: Chapter = async ({ e2b }) => {
  const { Template, Sandbox } = e2b;
  const template = Template()
    .fromBaseImage()
    .runCmd(INSTALLERS, { user: 'root' })
    .pipInstall(['a', 'b'])
    .npmInstall('c', { g: true })
    .bunInstall('d')
    .aptInstall('e');
  await Template.build(template, 'installed');
  const sandbox = await Sandbox.create('installed', { timeoutMs: 300_000 });
  assert.equal(
    await sandbox.files.read('/var/log/installed'),
    [
      'root: pip install a b',
      'root: npm install -g c',
      'user: bun install d',
      'root: apt-get update',
      'root: apt-get install -y e',
      '',
    ].join('\n'),
  );
  await sandbox.kill();
  await Sandbox.deleteSnapshot('installed');
  namesOfImages(e2b);
};

/** These name images of registries, which the server fetches as all others. */
function namesOfImages({ Template }: Package): void {
  const images = [
    Template().fromDebianImage(),
    Template().fromUbuntuImage(),
    Template().fromFedoraImage(),
    Template().fromAlpineImage(),
    Template().fromArchImage(),
    Template().fromPythonImage(),
    Template().fromNodeImage(),
    Template().fromBunImage(),
    Template().fromGCPRegistry('gcr.io/a/b', { serviceAccountJSON: { type: 'service_account' } }),
  ];
  assert.equal(images.length, 9);
}
