/** `torpor keys` with `ls`, `create` and `revoke`. */
import type { CreateKeyRequest, KeyView } from '@torpor/protocol';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { confirm } from '../confirm.ts';
import { parseSpan, relative } from '../human-units.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface OrgOption {
  readonly org?: string;
}

interface CreateOptions extends OrgOption {
  readonly subject?: string;
  readonly operator?: boolean;
  readonly expires?: number;
}

const ofOrg = () => new Option('--org <org>', 'of another organisation, with an operator key');

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list keys, also those that are over')
    .addOption(ofOrg())
    .action(
      handler<OrgOption>(async (cli, _, { org }) => {
        const { keys } = await cli.torpor();
        const items: KeyView[] = [];
        for await (const key of keys.list({ orgId: org, signal: cli.signal })) items.push(key);
        const now = cli.io.now();
        const rows = items.map((key) => [
          key.id,
          key.name,
          key.subject ?? (key.operator ? 'operator' : 'service'),
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
    .addOption(ofOrg())
    .option('--operator', 'let it manage organisations too')
    .option('--expires <span>', 'until when it opens anything, as 2h or 90d', parseSpan)
    .action(
      handler<CreateOptions>(async (cli, [name = ''], { org, subject, operator, expires }) => {
        const wanted = withoutUndefined({ subject, operator, expiresInSeconds: expires });
        const request = { name, ...wanted } as CreateKeyRequest;
        const made = await (await cli.torpor()).keys.create(request, { orgId: org, signal: cli.signal });
        cli.answer(made, () => made.key);
        cli.note(`This is ${made.id}. It is kept nowhere: write it down now.`);
      }),
    );
  command
    .command('revoke')
    .alias('rm')
    .summary('make a key open nothing any more')
    .argument('<key>', 'its id, key_…')
    .addOption(ofOrg())
    .option('-y, --yes', 'do not ask')
    .action(
      handler<OrgOption & { yes?: boolean }>(async (cli, [id = ''], { org, yes }) => {
        if (!yes) await confirm(cli, `Revoke ${id}? Whoever uses it is locked out at once.`);
        const key = await (await cli.torpor()).keys.revoke(id, { orgId: org, signal: cli.signal });
        cli.answer(key, () => `${id} is revoked`);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor keys create ci --expires 90d', 'for a machine'],
      ['torpor keys create laptop --subject ada', 'for a person'],
      ['torpor keys create first --org acme', 'for another organisation, with an operator key'],
    ],
    seeAlso: ['org', 'doctor'],
  });
};

function statusOf({ revokedAt, expiresAt }: KeyView, now: number): string {
  if (revokedAt !== null) return `revoked ${relative(revokedAt, now)}`;
  if (expiresAt === null) return 'valid';
  return expiresAt <= now ? `expired ${relative(expiresAt, now)}` : `expires ${relative(expiresAt, now)}`;
}
