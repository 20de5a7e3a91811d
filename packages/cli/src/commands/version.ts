/** `torpor version` */
import manifest from '../../package.json' with { type: 'json' };
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';

export const define: Define = (command, handler) => {
  addExamples(command, {
    examples: [['torpor version', 'of the command; `torpor doctor` asks the server for its own']],
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
