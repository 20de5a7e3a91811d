/** `torpor audit export`: one entry per line, as JSON, for other programs to keep. */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { parseNumber } from '../human-units.ts';

interface ExportOptions {
  readonly after?: number;
  readonly org?: string;
}

export const define: Define = (command, handler) => {
  command
    .command('export')
    .summary('print every change with the key that asked for it, as JSON lines')
    .option('--after <position>', 'only entries after this position', parseNumber)
    .option('--org <org>', 'another organisation, with an operator key')
    .action(
      handler<ExportOptions>(async (cli, _, { after, org }) => {
        const torpor = await cli.torpor();
        for await (const entry of torpor.audit({ after, orgId: org, signal: cli.signal }))
          cli.line(JSON.stringify(entry));
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor audit export > audit.jsonl', 'everything so far'],
      ["torpor audit export --after 1200 | jq 'select(.by != null)'", 'what keys asked for since then'],
    ],
    seeAlso: ['events', 'keys'],
  });
};
