/** The same by curl, SDK and CLI, ready to copy. */
import { Copyable } from '../ui/copyable.tsx';
import type { TabProps } from './sandbox-view.tsx';

export function UseTab({ sandbox: { id } }: TabProps) {
  const { origin } = location;
  const at = `${origin}/v1/sandboxes/${id}`;
  const curl = [
    '# a key is in the file api-key of the data directory',
    'KEY=…',
    `curl -s ${at} -H "Authorization: Bearer $KEY"`,
    `curl -s -X POST ${at}/exec -H "Authorization: Bearer $KEY" \\`,
    `  -H 'Content-Type: application/json' -d '{"command": "uname -a"}'`,
    `curl -s -X POST ${at}/pause -H "Authorization: Bearer $KEY"`,
    `curl -s -X POST ${at}/resume -H "Authorization: Bearer $KEY"`,
  ].join('\n');
  const sdk = [
    "import { Sandbox } from '@torpor/sdk'; // TORPOR_URL and TORPOR_API_KEY",
    '',
    `const sandbox = await Sandbox.connect('${id}');`,
    "const { stdout } = await sandbox.exec('uname -a'); // wakes it when it sleeps",
    "await sandbox.files.write('hello.txt', 'hello');",
    'await sandbox.pause();',
  ].join('\n');
  const cli = [
    `npx torpor exec ${id} 'uname -a'`,
    `npx torpor shell ${id}`,
    `npx torpor pause ${id}`,
    `npx torpor resume ${id}`,
    `npx torpor fork ${id}`,
    `npx torpor events ${id}`,
  ].join('\n');
  const e2b = [
    "import { Sandbox } from 'e2b'; // E2B_API_URL and E2B_API_KEY; see docs/coming-from-e2b.md",
    '',
    `const sandbox = await Sandbox.connect('${id.replace(/^sbx_/, '')}', {\n  apiUrl: '${origin}', sandboxUrl: '${origin}',\n});`,
    "await sandbox.commands.run('uname -a');",
  ].join('\n');
  return (
    <div class="stack">
      <Copyable title="Command line" text={cli} />
      <Copyable title="TypeScript" text={sdk} />
      <Copyable title="curl" text={curl} />
      <Copyable title="An E2B program" text={e2b} />
    </div>
  );
}
