/** Asks the user before an action that cannot be undone. Scripts are not asked. */
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';

export async function confirm(cli: Cli, message: string): Promise<void> {
  if (!cli.interactive) return;
  const { confirm: ask, isCancel } = await import('@clack/prompts');
  const answer = await ask({ message, initialValue: false, output: cli.io.stderr, signal: cli.signal });
  if (isCancel(answer) || !answer) throw new CliError('CANCELLED', 'Cancelled. Nothing was changed.');
}
