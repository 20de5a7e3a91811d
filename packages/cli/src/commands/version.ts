/** `torpor version` */
import manifest from '../../package.json' with { type: 'json' };
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';

export const define: Define = (command, handler) => {
  addExamples(command, {
    examples: [['torpor version', 'version of the CLI; `torpor doctor` shows that of the server']],
    seeAlso: ['doctor'],
  });
  command.action(
    handler(async (cli) => {
      const { version } = manifest;
      const node = process.version;
      cli.answer(
        { version, node, platform: `${process.platform}-${process.arch}` },
        () => `torpor ${version} (node ${node})`,
      );
    }),
  );
};
