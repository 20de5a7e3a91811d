/** `torpor org` with `ls`, `create`, `get`, `set-quota`, `set-retention` and `delete`. */
import {
  type OrgDetails,
  type OrgView,
  QUOTA_NAMES,
  type QuotaChange,
  type QuotaName,
} from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { confirm } from '../confirm.ts';
import { CliError } from '../failure.ts';
import { parseRetention, relative, retentionText } from '../human-units.ts';

const QUOTA_ARGUMENT = `${QUOTA_NAMES[0]}=10, or =none to remove it. Quotas: ${QUOTA_NAMES.join(', ')}`;

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list organisations')
    .action(
      handler(async (cli) => {
        const { orgs } = await cli.torpor();
        const items: OrgView[] = [];
        for await (const org of orgs.list({ signal: cli.signal })) items.push(org);
        const now = cli.io.now();
        const rows = items.map(({ id, createdAt, quotas }) => [
          id,
          relative(createdAt, now),
          limitsOf(quotas).join(' ') || 'unlimited',
        ]);
        cli.answer({ items, nextCursor: null }, () =>
          columns(['ORGANISATION', 'CREATED', 'QUOTAS'], rows, cli.io.colors),
        );
      }),
    );
  command
    .command('create')
    .summary('create an organisation')
    .argument('<name>', 'name: lower-case letters, digits and -')
    .argument('[quota...]', QUOTA_ARGUMENT)
    .action(
      handler(async (cli, [name = '', ...quotas]) => {
        const request = { name, quotas: parseQuotas(quotas) };
        const made = await (await cli.torpor()).orgs.create(request, { signal: cli.signal });
        cli.answer(made, () => `${made.id} is created`);
        cli.note(`Create its first key: torpor keys create <name> --org ${made.id}`);
      }),
    );
  command
    .command('get')
    .alias('show')
    .summary('show the quotas of an organisation and what is used')
    .argument('<org>', 'name of the organisation')
    .action(
      handler(async (cli, [id = '']) => {
        const org = await (await cli.torpor()).orgs.get(id, { signal: cli.signal });
        cli.answer(org, () => `${quotaTable(org, cli.io.colors)}\n${keptText(org)}`);
      }),
    );
  command
    .command('set-quota')
    .summary('set or remove quotas')
    .argument('<org>', 'name of the organisation')
    .argument('<quota...>', QUOTA_ARGUMENT)
    .action(
      handler(async (cli, [id = '', ...quotas]) => {
        const change = parseQuotas(quotas);
        const org = await (await cli.torpor()).orgs.setQuotas(id, change, { signal: cli.signal });
        cli.answer(org, () => quotaTable(org, cli.io.colors));
      }),
    );
  command
    .command('set-retention')
    .summary('set how long paused sandboxes are kept by default')
    .argument('<org>', 'name of the organisation')
    .argument('<span>', 'as 12h, 30d; "never", or "default" for the setting of the server')
    .action(
      handler(async (cli, [id = '', span = '']) => {
        const torpor = await cli.torpor();
        const org = await torpor.orgs.setRetention(id, parseRetention(span), { signal: cli.signal });
        cli.answer(org, () => keptText(org));
      }),
    );
  command
    .command('delete')
    .alias('rm')
    .summary('delete an empty organisation')
    .argument('<org>', 'name of the organisation')
    .option('-y, --yes', 'do not ask')
    .action(
      handler<{ yes?: boolean }>(async (cli, [id = ''], { yes }) => {
        if (!yes) await confirm(cli, `Delete ${id}? Its name cannot be used again.`);
        const org = await (await cli.torpor()).orgs.delete(id, { signal: cli.signal });
        cli.answer(org, () => `${id} is deleted`);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor org create acme runningSandboxes=10 memoryMb=16384', 'with quotas'],
      ['torpor keys create first --org acme', 'its first key'],
      ['torpor org set-quota acme sandboxes=50 memoryMb=none', 'change one quota, remove another'],
      ['torpor org set-retention acme 30d', 'delete paused sandboxes after 30 days without use'],
    ],
    seeAlso: ['keys', 'usage'],
  });
};

/** `name=number`, or `name=none` for no limit. */
function parseQuotas(words: readonly string[]): QuotaChange {
  const pairs = words.map((word) => {
    const [, name = '', value = ''] = /^([A-Za-z]+)=(\d{1,12}|none)$/.exec(word) ?? [];
    if (!isQuota(name)) {
      throw new CliError('INVALID_ARGUMENT', `"${word}" is not a quota.`, {
        hint: `Write ${QUOTA_ARGUMENT}.`,
      });
    }
    return [name, value === 'none' ? null : Number(value)];
  });
  return Object.fromEntries(pairs) as QuotaChange;
}

function keptText({ id, deletePausedAfterSeconds }: OrgView): string {
  return `${id} keeps paused sandboxes ${retentionText(deletePausedAfterSeconds)}`;
}

function isQuota(name: string): name is QuotaName {
  return (QUOTA_NAMES as readonly string[]).includes(name);
}

function limitsOf(quotas: OrgView['quotas']): string[] {
  return QUOTA_NAMES.filter((name) => quotas[name] !== null).map((name) => `${name}=${quotas[name]}`);
}

function quotaTable({ quotas, used }: OrgDetails, colors: Parameters<typeof columns>[2]): string {
  const rows = QUOTA_NAMES.map((name) => [name, String(used[name]), String(quotas[name] ?? 'none')]);
  return columns(['QUOTA', 'USED', 'LIMIT'], rows, colors);
}
