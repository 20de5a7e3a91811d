/** `torpor keys` with `ls`, `create` and `revoke`. */
import type { CreateKeyRequest, KeyView } from '@torpor/protocol';
import { teach } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { confirm } from '../confirm.ts';
import { parseSpan, relative } from '../human-units.ts';
import { given } from '../pairs.ts';

export const define: Define = (command, act) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list keys, also those that are over')
    .action(
      act(async (cli) => {
        const { keys } = await cli.torpor();
        const items: KeyView[] = [];
        for await (const key of keys.list({ signal: cli.signal })) items.push(key);
        const now = cli.io.now();
        const rows = items.map((key) => [
          key.id,
          key.name,
          key.subject ?? 'service',
          relative(key.createdAt, now),
          statusOf(key, now),
        ]);
        cli.answer({ items, nextCursor: null }, () =>
          columns(['ID', 'NAME', 'WHOSE', 'MADE', 'STATUS'], rows, cli.io.colors),
        );
      }),
    );
  command
    .command('create')
    .summary('make a key; it is shown this once')
    .argument('<name>', 'what it is for')
    .option('--subject <user>', 'the user whose key it is (default: a service key)')
    .option('--expires <span>', 'until when it opens anything, as 2h or 90d', parseSpan)
    .action(
      act<{ subject?: string; expires?: number }>(async (cli, [name = ''], { subject, expires }) => {
        const request = { name, ...given({ subject, expiresInSeconds: expires }) } as CreateKeyRequest;
        const made = await (await cli.torpor()).keys.create(request, { signal: cli.signal });
        cli.answer(made, () => made.key);
        cli.remark(`This is ${made.id}. It is kept nowhere: write it down now.`);
      }),
    );
  command
    .command('revoke')
    .alias('rm')
    .summary('make a key open nothing any more')
    .argument('<key>', 'its id, key_…')
    .option('-y, --yes', 'do not ask')
    .action(
      act<{ yes?: boolean }>(async (cli, [id = ''], { yes }) => {
        if (!yes) await confirm(cli, `Revoke ${id}? Whoever uses it is locked out at once.`);
        const key = await (await cli.torpor()).keys.revoke(id, { signal: cli.signal });
        cli.answer(key, () => `${id} is revoked`);
      }),
    );
  teach(command, {
    examples: [
      ['torpor keys create ci --expires 90d', 'for a machine'],
      ['torpor keys create laptop --subject ada', 'for a person'],
    ],
    seeAlso: ['doctor'],
  });
};

function statusOf({ revokedAt, expiresAt }: KeyView, now: number): string {
  if (revokedAt !== null) return `revoked ${relative(revokedAt, now)}`;
  if (expiresAt === null) return 'valid';
  return expiresAt <= now ? `expired ${relative(expiresAt, now)}` : `expires ${relative(expiresAt, now)}`;
}
