/** Asks before what cannot be undone, where somebody is there to ask. A script has made up its mind. */
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';

export async function confirm(cli: Cli, message: string): Promise<void> {
  if (!cli.interactive) return;
  const { confirm: ask, isCancel } = await import('@clack/prompts');
  const answer = await ask({ message, initialValue: false, output: cli.io.stderr, signal: cli.signal });
  if (isCancel(answer) || !answer) throw new CliError('CANCELLED', 'Cancelled; nothing was changed.');
}
