/** How programs and models reach this server, ready to copy. */
import type { ComponentChildren } from 'preact';
import { href } from '../shell/router.ts';
import { identity } from '../shell/session.ts';
import { Copyable } from '../ui/copyable.tsx';

export function ConnectView() {
  const { origin } = location;
  const env = [`export TORPOR_URL=${origin}`, 'export TORPOR_API_KEY=<key>'].join('\n');
  const sdk = [
    "import { Sandbox } from '@torpor/sdk';",
    '',
    "const sandbox = await Sandbox.getOrCreate('web');",
    "console.log((await sandbox.exec('uname -a')).stdout);",
    'await sandbox.pause(); // memory and files are kept; the next call wakes it',
  ].join('\n');
  const cli = ['npx torpor create --name web', "npx torpor exec web 'uname -a'", 'npx torpor shell web'].join(
    '\n',
  );
  const curl = [
    `curl -s -X POST ${origin}/v1/sandboxes \\`,
    '  -H "Authorization: Bearer $TORPOR_API_KEY" \\',
    `  -H 'Content-Type: application/json' -d '{"name": "web"}'`,
  ].join('\n');
  const e2b = [
    'export E2B_API_KEY=e2b_<key>   # the same key, with this prefix',
    `export E2B_API_URL=${origin}`,
    `export E2B_SANDBOX_URL=${origin}`,
  ].join('\n');
  const e2bScript = [
    "import { Sandbox } from 'e2b';",
    '',
    'const sandbox = await Sandbox.create();',
    "console.log((await sandbox.commands.run('uname -a')).stdout);",
  ].join('\n');
  const e2bPython = [
    'from e2b import Sandbox',
    '',
    'sandbox = Sandbox.create()',
    'print(sandbox.commands.run("uname -a").stdout)',
  ].join('\n');
  const claude = `claude mcp add --transport http torpor ${origin}/mcp \\\n  --header "Authorization: Bearer <key>"`;
  const mcp = JSON.stringify(
    {
      mcpServers: {
        torpor: { url: `${origin}/mcp?maxSandboxes=5`, headers: { Authorization: 'Bearer <key>' } },
      },
    },
    null,
    2,
  );
  const webhook = `npx torpor webhook create https://example.com/torpor --event 'sandbox.*'`;
  return (
    <>
      <div class="page-head">
        <h1>Connect</h1>
        <span class="quiet">Everything that this page does, programs can do by the same API.</span>
      </div>
      <div class="stack connect">
        <Part title="A program">
          <p class="quiet">
            It needs the address and a key.{' '}
            {identity().service ? (
              <a href={href('keys')}>Create a key for it</a>
            ) : (
              'Ask for a key of your organisation.'
            )}
          </p>
          <div class="columns">
            <Copyable title="Address and key" text={env} />
            <Copyable title="Command line" text={cli} />
            <Copyable title="TypeScript" text={sdk} />
            <Copyable title="curl" text={curl} />
          </div>
          <p class="quiet">
            All requests and answers: <a href="/v1/openapi.json">/v1/openapi.json</a>
          </p>
        </Part>
        <Part title="An E2B program">
          <p class="quiet">
            The packages of E2B work as they are, in JavaScript and Python, when these variables are set.
          </p>
          <div class="columns">
            <Copyable title="Variables" text={e2b} />
            <Copyable title="JavaScript" text={e2bScript} />
            <Copyable title="Python" text={e2bPython} />
          </div>
        </Part>
        <Part title="A model">
          <p class="quiet">
            An agent gets sandboxes as tools, by the Model Context Protocol. Its key limits what it can do: a
            key of an organisation with quotas of its own is the safest.
          </p>
          <div class="columns">
            <Copyable title="Claude Code" text={claude} />
            <Copyable title="Another MCP client" text={mcp} />
          </div>
        </Part>
        <Part title="A receiver of events">
          <p class="quiet">
            Every event is sent at least once, signed, and in order for each sandbox.{' '}
            {identity().service ? (
              <a href={href('webhooks')}>Webhooks of this organisation</a>
            ) : (
              'Service keys manage webhooks.'
            )}
          </p>
          <Copyable title="Webhook" text={webhook} />
        </Part>
      </div>
    </>
  );
}

function Part({ title, children }: { readonly title: string; readonly children: ComponentChildren }) {
  return (
    <section class="panel stack connect-part">
      <h2>{title}</h2>
      {children}
    </section>
  );
}
