/** `torpor completion` */
import { basename } from 'node:path';
import { Argument } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { CliError } from '../failure.ts';

const SHELLS = ['bash', 'zsh', 'fish', 'powershell'];

export const define: Define = (command, handler) => {
  command.addArgument(new Argument('[shell]', 'shell (default: the current one)').choices(SHELLS));
  addExamples(command, {
    examples: [
      ['source <(torpor completion bash)', 'add to ~/.bashrc'],
      ['source <(torpor completion zsh)', 'add to ~/.zshrc'],
      ['torpor completion fish > ~/.config/fish/completions/torpor.fish', 'run once'],
    ],
    seeAlso: ['version'],
  });
  command.action(
    handler(async (cli, [given]) => {
      const shell = given ?? basename(cli.io.env['SHELL'] ?? '');
      if (!SHELLS.includes(shell)) {
        throw new CliError('INVALID_ARGUMENT', 'Unknown shell.', {
          hint: `Use one of ${SHELLS.join(', ')}.`,
        });
      }
      const { default: tab } = await import('@bomb.sh/tab');
      tab.setup('torpor', 'torpor', shell);
    }),
  );
};
