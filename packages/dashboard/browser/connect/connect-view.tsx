/** How programs reach this server: the command line, the SDK, an E2B program. */
import { Copyable } from '../ui/copyable.tsx';

export function ConnectView() {
  const { origin } = location;
  const env = [`export TORPOR_URL=${origin}`, 'export TORPOR_API_KEY=…   # Keys, on this page'].join('\n');
  const sdk = [
    "import { Sandbox } from '@torpor/sdk';",
    '',
    "const sandbox = await Sandbox.getOrCreate('web');",
    "console.log((await sandbox.exec('uname -a')).stdout);",
    'await sandbox.pause(); // memory and files are kept; the next call wakes it',
  ].join('\n');
  const e2b = [
    'export E2B_API_KEY=e2b_…   # the same key, with this prefix',
    `export E2B_API_URL=${origin}`,
    `export E2B_SANDBOX_URL=${origin}`,
  ].join('\n');
  const curl = `curl -s ${origin}/v1/sandboxes -H "Authorization: Bearer $TORPOR_API_KEY"`;
  return (
    <>
      <div class="page-head">
        <h1>Connect</h1>
      </div>
      <div class="stack connect">
        <p class="quiet">Everything that this page does, programs can do by the same API.</p>
        <Copyable title="For the command line and the SDK" text={env} />
        <Copyable title="TypeScript" text={sdk} />
        <Copyable title="An unmodified E2B program, in JavaScript or Python" text={e2b} />
        <Copyable title="curl" text={curl} />
        <p>
          The whole API: <a href="/v1/openapi.json">/v1/openapi.json</a>
        </p>
      </div>
    </>
  );
}
