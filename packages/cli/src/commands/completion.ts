/** `torpor completion` */
import { basename } from 'node:path';
import { Argument } from 'commander';
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { CliError } from '../failure.ts';

const SHELLS = ['bash', 'zsh', 'fish', 'powershell'];

export const define: Define = (command, act) => {
  command.addArgument(new Argument('[shell]', 'which (default: yours)').choices(SHELLS));
  teach(command, {
    examples: [
      ['source <(torpor completion bash)', 'in ~/.bashrc'],
      ['source <(torpor completion zsh)', 'in ~/.zshrc'],
      ['torpor completion fish > ~/.config/fish/completions/torpor.fish', 'once'],
    ],
    seeAlso: ['version'],
  });
  command.action(
    act(async (cli, [given]) => {
      const shell = given ?? basename(cli.io.env['SHELL'] ?? '');
      if (!SHELLS.includes(shell)) {
        throw new CliError('INVALID_ARGUMENT', 'Say which shell.', { hint: `One of ${SHELLS.join(', ')}.` });
      }
      const { default: tab } = await import('@bomb.sh/tab');
      tab.setup('torpor', 'torpor', shell);
    }),
  );
};
