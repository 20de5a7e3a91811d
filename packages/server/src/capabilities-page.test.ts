import { join } from 'node:path';
import { type Capabilities, capabilitiesSchema } from '@torpor/protocol';
import { AGENT_SANDBOX_CAPABILITIES } from '@torpor/runtime-agent-sandbox';
import { GVISOR_CAPABILITIES } from '@torpor/runtime-gvisor';
import { KUBERNETES_CAPABILITIES } from '@torpor/runtime-kubernetes';
import { PROCESS_CAPABILITIES } from '@torpor/runtime-process';
import { describe, expect, it } from 'vitest';

const PAGE = join(import.meta.dirname, '../../../docs/runtimes/capabilities.md');

const RUNTIMES: readonly (readonly [name: string, capabilities: Capabilities])[] = [
  ['gvisor', GVISOR_CAPABILITIES],
  ['process', PROCESS_CAPABILITIES],
  ['kubernetes', KUBERNETES_CAPABILITIES],
  ['agent-sandbox', AGENT_SANDBOX_CAPABILITIES],
];

const MEANINGS: Readonly<Record<keyof Capabilities, string>> = {
  pause: 'what survives a pause; `none`: pauses are refused, and no sandbox is ever `paused`',
  replayable: 'a checkpoint of a pause can be started more than once',
  fork: 'forks of a running sandbox, and new sandboxes from its checkpoints',
  snapshotWhileRunning:
    'the processes run on during a snapshot; otherwise a snapshot is a pause and a start, or is refused',
  pty: 'terminals',
  isolated: 'sandboxes are isolated from the machine and from each other',
  customTemplates: 'templates from images or archives of your own',
};

function capabilitiesPage(): string {
  const names = Object.keys(capabilitiesSchema.shape) as (keyof Capabilities)[];
  const row = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const rows = names.map((name) =>
    row([`\`${name}\``, MEANINGS[name], ...RUNTIMES.map(([, has]) => shown(has[name]))]),
  );
  const head = ['capability', 'meaning', ...RUNTIMES.map(([name]) => `\`${name}\``)];
  return `# What each runtime can do

The engine asks for these capabilities before it writes anything, and at create for the policies that the caller wants. \`GET /v1/runtimes\` (\`torpor.runtimes()\` of the SDK) says the same of the runtimes of one server.

${[row(head), row(head.map(() => '---')), ...rows].join('\n')}

The runtime \`e2b\` has the capabilities of its provider, which it finds out by trying them ([e2b.md](e2b.md)).

This page is generated from the code: \`vitest run packages/server/src/capabilities-page.test.ts -u\`.
`;
}

function shown(value: string | boolean): string {
  if (typeof value === 'string') return value;
  return value ? 'yes' : 'no';
}

describe('docs/runtimes/capabilities.md', () => {
  it('says of every runtime what it declares', async () => {
    await expect(capabilitiesPage()).toMatchFileSnapshot(PAGE);
  });
});
