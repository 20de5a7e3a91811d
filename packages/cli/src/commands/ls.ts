/** `torpor ls` */
import { SANDBOX_STATES, type SandboxState, type SandboxView } from '@torpor/protocol';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { collectValues, parsePairs } from '../repeated-options.ts';
import { LIVE_STATES } from '../sandbox-argument.ts';
import { sandboxColumns } from '../sandbox-text.ts';

interface LsOptions {
  state?: SandboxState[];
  metadata?: string[];
  all?: boolean;
  quiet?: boolean;
}

/** Lost sandboxes are listed too, because the user may not know of the loss. */
const DEFAULT_STATES: readonly SandboxState[] = [...LIVE_STATES, 'lost'];

export const define: Define = (command, handler) => {
  command
    .addOption(
      new Option('-s, --state <states...>', 'only sandboxes in these states').choices(SANDBOX_STATES),
    )
    .option('-m, --metadata <key=value>', 'only sandboxes with this metadata; may be repeated', collectValues)
    .option('-a, --all', 'include ended sandboxes')
    .option('-q, --quiet', 'print only ids');
  addExamples(command, {
    examples: [
      ['torpor ls', 'all sandboxes that have not ended'],
      ['torpor ls --state paused', 'paused sandboxes'],
      ['torpor kill $(torpor ls -q -m app=test)', 'kill all sandboxes with this metadata'],
    ],
    seeAlso: ['get', 'create', 'events'],
  });
  command.action(
    handler<LsOptions>(async (cli, _, { state, metadata, all, quiet }) => {
      const torpor = await cli.torpor();
      const filter = {
        state: state ?? (all ? undefined : DEFAULT_STATES),
        metadata: parsePairs('--metadata', metadata),
        limit: 1_000,
        signal: cli.signal,
      };
      const items: SandboxView[] = [];
      for await (const sandbox of torpor.sandboxes.list(filter)) items.push(sandbox);
      items.sort((a, b) => a.createdAt - b.createdAt);
      cli.answer({ items, nextCursor: null }, () => {
        if (quiet) return items.map(({ id }) => id).join('\n');
        return items.length === 0 ? '' : sandboxColumns(items, cli.io.now(), cli.io.colors);
      });
      if (items.length === 0) cli.note('No sandboxes. Create one with `torpor create`.');
    }),
  );
};
