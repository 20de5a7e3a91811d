/** `torpor version` */
import manifest from '../../package.json' with { type: 'json' };
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';

export const define: Define = (command, act) => {
  teach(command, {
    examples: [['torpor version', 'of the command; `torpor doctor` asks the server for its own']],
    seeAlso: ['doctor'],
  });
  command.action(
    act(async (cli) => {
      const { version } = manifest;
      const node = process.version;
      cli.answer(
        { version, node, platform: `${process.platform}-${process.arch}` },
        () => `torpor ${version} (node ${node})`,
      );
    }),
  );
};
