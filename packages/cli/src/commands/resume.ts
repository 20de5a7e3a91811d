/** `torpor resume` */
import type { ResumeRequest } from '@torpor/protocol';
import type { ResumeReply } from '@torpor/sdk';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { parseSpan } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface ResumeOptions {
  timeout?: number;
  from?: NonNullable<ResumeRequest['from']>;
  fallback?: NonNullable<ResumeRequest['fallback']>;
}

export const define: Define = (command, handler) => {
  command
    .argument('[sandbox]', 'sandbox id or name')
    .option('--timeout <span>', 'how long it may run from now, as 90s, 5m, 2h', parseSpan)
    .option('--from <checkpoint>', 'checkpoint to use instead of the newest')
    .addOption(
      new Option('--fallback <sources...>', 'fallbacks when the checkpoint cannot be used').choices([
        'files',
        'previous',
        'template',
      ]),
    );
  addExamples(command, {
    examples: [
      ['torpor resume web', 'continue where it was paused'],
      ['torpor resume web --fallback files previous', 'accept losses if necessary'],
    ],
    seeAlso: ['pause', 'rollback', 'checkpoints'],
  });
  command.action(
    handler<ResumeOptions>(async (cli, [sandbox], { timeout, from, fallback }) => {
      const id = await sandboxOf(cli, sandbox);
      const { sandboxes } = await cli.torpor();
      const request = withoutUndefined({ timeoutSeconds: timeout, from, fallback }) as ResumeRequest;
      const reply = await cli.withSpinner(
        `Resuming ${id}…`,
        sandboxes.resume(id, request, { signal: cli.signal }),
      );
      cli.answer(reply, () => startedText(cli, reply));
    }),
  );
};

/** What the sandbox was started from, and what was lost. */
export function startedText(cli: Cli, { sandbox, source, lost, skipped = [] }: ResumeReply): string {
  const from = source.checkpointId === null ? source.kind : `${source.kind} in ${source.checkpointId}`;
  const without = lost.length > 0 ? cli.io.colors.yellow(`; lost: ${lost.join(', ')}`) : '';
  const instead = skipped.map(({ part, why }) => `\n  ${cli.io.colors.yellow(`${part} not used: ${why}`)}`);
  const urls = Object.values(sandbox.urls ?? {}).map((url) => `\n  ${cli.io.colors.cyan(url)}`);
  return `${sandbox.id} runs, from ${from}${without}${instead.join('')}${urls.join('')}`;
}
