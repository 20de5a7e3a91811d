/** `torpor page` */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';

export const define: Define = (command, handler) => {
  command.option('--read-only', 'the browser may look at everything and change nothing');
  addExamples(command, {
    examples: [
      ['torpor page', 'print a link that signs one browser in'],
      ['torpor page --read-only', 'for a browser that only looks'],
    ],
    seeAlso: ['up', 'keys'],
  });
  command.action(
    handler<{ readonly readOnly?: boolean }>(async (cli, _, { readOnly = false }) => {
      const link = await (await cli.torpor()).page.link({ readOnly }, { signal: cli.signal });
      cli.answer(link, () => link.url);
      cli.note('The link works once.');
    }),
  );
};
