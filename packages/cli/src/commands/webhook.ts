/** `torpor webhook` with `ls`, `create`, `get`, `rm`, `test`, `replay` and `dead-letters`. */
import type { DeadLetter, EventFilter, WebhookId, WebhookView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { confirm } from '../confirm.ts';
import { EXIT } from '../exit-codes.ts';
import { parseNumber, relative } from '../human-units.ts';
import { collectValues } from '../repeated-options.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface CreateOptions {
  readonly event?: readonly EventFilter[];
  readonly after?: number;
}

const WEBHOOK_ARGUMENT = 'webhook id, hook_…';

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list webhooks')
    .action(
      handler(async (cli) => {
        const { webhooks } = await cli.torpor();
        const items: WebhookView[] = [];
        for await (const webhook of webhooks.list({ signal: cli.signal })) items.push(webhook);
        const now = cli.io.now();
        const rows = items.map((one) => [
          one.id,
          one.url,
          one.events.join(',') || 'all',
          String(one.position),
          statusOf(one, now),
        ]);
        cli.answer({ items, nextCursor: null }, () =>
          columns(['ID', 'URL', 'EVENTS', 'POSITION', 'STATUS'], rows, cli.io.colors),
        );
      }),
    );
  command
    .command('create')
    .summary('send events to an address; prints the secret, which is shown only once')
    .argument('<url>', 'http or https address of the receiver')
    .option('--event <type>', 'only this type, or a family such as sandbox.* (repeatable)', collectValues)
    .option('--after <position>', 'also events after this position (default: only new events)', parseNumber)
    .action(
      handler<CreateOptions>(async (cli, [url = ''], { event, after }) => {
        const wanted = withoutUndefined({
          events: event === undefined ? undefined : [...event],
          afterPosition: after,
        });
        const made = await (await cli.torpor()).webhooks.create({ url, ...wanted }, { signal: cli.signal });
        cli.answer(made, () => made.secret);
        cli.note(`This is the secret of ${made.id}. Save it now. Try it: torpor webhook test ${made.id}`);
      }),
    );
  command
    .command('get')
    .alias('show')
    .summary('show one webhook')
    .argument('<webhook>', WEBHOOK_ARGUMENT)
    .action(
      handler(async (cli, [id = '']) => {
        const webhook = await (await cli.torpor()).webhooks.get(id as WebhookId, { signal: cli.signal });
        cli.answer(webhook, () => describe(webhook, cli.io.now()));
      }),
    );
  command
    .command('rm')
    .alias('delete')
    .summary('delete a webhook')
    .argument('<webhook>', WEBHOOK_ARGUMENT)
    .option('-y, --yes', 'do not ask')
    .action(
      handler<{ yes?: boolean }>(async (cli, [id = ''], { yes }) => {
        if (!yes) await confirm(cli, `Delete ${id}? Events that wait for it are not sent any more.`);
        const gone = await (await cli.torpor()).webhooks.delete(id as WebhookId, { signal: cli.signal });
        cli.answer(gone, () => `${id} is deleted`);
      }),
    );
  command
    .command('test')
    .summary('send a test request now')
    .argument('<webhook>', WEBHOOK_ARGUMENT)
    .action(
      handler(async (cli, [id = '']) => {
        const outcome = await (await cli.torpor()).webhooks.test(id as WebhookId, { signal: cli.signal });
        cli.answer(outcome, () =>
          outcome.delivered
            ? `delivered: ${outcome.status} in ${outcome.durationMs} ms`
            : `not delivered: ${outcome.error}`,
        );
        return outcome.delivered ? EXIT.ok : EXIT.api;
      }),
    );
  command
    .command('replay')
    .summary('send events again, from a position on')
    .argument('<webhook>', WEBHOOK_ARGUMENT)
    .argument('<position>', 'position of the first event')
    .action(
      handler(async (cli, [id = '', position = '']) => {
        const from = parseNumber(position);
        const { webhooks } = await cli.torpor();
        const webhook = await webhooks.replay(id as WebhookId, from, { signal: cli.signal });
        cli.answer(webhook, () => `${id} sends events from position ${from} on again`);
      }),
    );
  command
    .command('dead-letters')
    .summary('list events that were given up')
    .argument('<webhook>', WEBHOOK_ARGUMENT)
    .action(
      handler(async (cli, [id = '']) => {
        const { webhooks } = await cli.torpor();
        const items: DeadLetter[] = [];
        for await (const letter of webhooks.deadLetters(id as WebhookId, { signal: cli.signal }))
          items.push(letter);
        const now = cli.io.now();
        const rows = items.map((one) => [
          String(one.position),
          one.type,
          one.sandboxId,
          String(one.tries),
          relative(one.deadAt, now),
          one.error,
        ]);
        cli.answer({ items, nextCursor: null }, () =>
          columns(['POSITION', 'TYPE', 'SANDBOX', 'TRIES', 'GIVEN UP', 'ERROR'], rows, cli.io.colors),
        );
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor webhook create https://example.com/torpor --event sandbox.*', 'all events of sandboxes'],
      ['torpor webhook test hook_…', 'check that the receiver answers'],
      ['torpor webhook replay hook_… 1200', 'send again what the receiver lost'],
    ],
    seeAlso: ['events', 'audit'],
  });
};

function statusOf({ waiting, dead, error }: WebhookView, now: number): string {
  const parts = [
    ...(error === null ? [] : [`failing ${relative(error.at, now)}`]),
    ...(waiting === 0 ? [] : [`${waiting} waiting`]),
    ...(dead === 0 ? [] : [`${dead} given up`]),
  ];
  return parts.join(', ') || 'delivered';
}

function describe(webhook: WebhookView, now: number): string {
  const { id, url, events, position, deliveredAt, error } = webhook;
  const lines = [
    `${id}  ${url}`,
    `events     ${events.join(', ') || 'all'}`,
    `position   ${position}`,
    `status     ${statusOf(webhook, now)}`,
    `delivered  ${deliveredAt === null ? 'never' : relative(deliveredAt, now)}`,
    ...(error === null ? [] : [`error      ${error.message}`]),
  ];
  return lines.join('\n');
}
