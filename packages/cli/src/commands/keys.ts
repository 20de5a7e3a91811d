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
  readonly readOnly?: boolean;
  readonly expires?: number;
}

const ofOrg = () => new Option('--org <org>', 'another organisation, with an operator key');

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list keys, including revoked and expired ones')
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
          columns(['ID', 'NAME', 'OWNER', 'CREATED', 'STATUS'], rows, cli.io.colors),
        );
      }),
    );
  command
    .command('create')
    .summary('create a key; it is shown only once')
    .argument('<name>', 'name of the key')
    .option('--subject <user>', 'user of the key (default: a service key)')
    .addOption(ofOrg())
    .option('--operator', 'operator key: it may also manage organisations')
    .option('--read-only', 'it sees everything and changes nothing')
    .option('--expires <span>', 'how long it is valid, as 2h or 90d', parseSpan)
    .action(
      handler<CreateOptions>(async (cli, [name = ''], { org, subject, operator, readOnly, expires }) => {
        const wanted = withoutUndefined({ subject, operator, readOnly, expiresInSeconds: expires });
        const request = { name, ...wanted } as CreateKeyRequest;
        const made = await (await cli.torpor()).keys.create(request, { orgId: org, signal: cli.signal });
        cli.answer(made, () => made.key);
        cli.note(`This is ${made.id}. The key is not stored. Save it now.`);
      }),
    );
  command
    .command('revoke')
    .alias('rm')
    .summary('revoke a key')
    .argument('<key>', 'key id, key_…')
    .addOption(ofOrg())
    .option('-y, --yes', 'do not ask')
    .action(
      handler<OrgOption & { yes?: boolean }>(async (cli, [id = ''], { org, yes }) => {
        if (!yes) await confirm(cli, `Revoke ${id}? Its clients lose access at once.`);
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
