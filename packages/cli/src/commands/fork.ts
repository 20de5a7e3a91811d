/** `torpor fork` */
import type { ForkRequest } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { EXIT } from '../exit-codes.ts';
import { parseNumber } from '../human-units.ts';
import { collectValues, parsePairs } from '../repeated-options.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface ForkOptions {
  count?: number;
  name?: string;
  metadata?: string[];
}

export const define: Define = (command, handler) => {
  command
    .argument('[sandbox]', 'sandbox id or name')
    .option('-c, --count <n>', 'number of copies (default: 1)', parseNumber)
    .option('-n, --name <name>', 'name of the copy')
    .option('-m, --metadata <key=value>', 'metadata; may be repeated', collectValues);
  addExamples(command, {
    examples: [
      ['torpor fork web', 'one independent copy'],
      ['torpor fork web --count 8', 'eight copies'],
    ],
    seeAlso: ['snapshot', 'create'],
  });
  command.action(
    handler<ForkOptions>(async (cli, [sandbox], { count, name, metadata }) => {
      const id = await sandboxOf(cli, sandbox);
      const { sandboxes } = await cli.torpor();
      const request = withoutUndefined({
        count,
        name,
        metadata: parsePairs('--metadata', metadata),
      }) as ForkRequest;
      const reply = await cli.withSpinner(
        `Forking ${id}…`,
        sandboxes.fork(id, request, { signal: cli.signal }),
      );
      const made = reply.items.flatMap((item) => ('sandbox' in item ? [item.sandbox.id] : []));
      const failed = reply.items.flatMap((item) => ('error' in item ? [item.error] : []));
      cli.answer(reply, () => made.join('\n'));
      for (const error of failed) if (!cli.json) cli.io.stderr.write(`a fork failed: ${error.message}\n`);
      return failed.length > 0 ? EXIT.api : EXIT.ok;
    }),
  );
};
