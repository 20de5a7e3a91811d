/** `torpor secret` with `ls`, `set` and `rm`. A value never stands on the command line, where other users could read it. */
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import type { SecretView, SetSecretRequest } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { confirm } from '../confirm.ts';
import { CliError } from '../failure.ts';
import { relative } from '../human-units.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface SetOptions {
  readonly host: string;
  readonly header: string;
  readonly prefix?: string;
  readonly method?: string;
  readonly path?: string;
  readonly valueFile?: string;
}

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list secrets, without their values')
    .action(
      handler(async (cli) => {
        const { secrets } = await cli.torpor();
        const items: SecretView[] = [];
        for await (const secret of secrets.list({ signal: cli.signal })) items.push(secret);
        const now = cli.io.now();
        const rows = items.map((one) => [
          one.name,
          one.host,
          one.header,
          rulesOf(one),
          relative(one.updatedAt, now),
        ]);
        cli.answer({ items, nextCursor: null }, () =>
          columns(['NAME', 'HOST', 'HEADER', 'REQUESTS', 'SET'], rows, cli.io.colors),
        );
      }),
    );
  command
    .command('set')
    .summary('set or replace a secret; its value is read from stdin, a file or a prompt')
    .argument('<name>', 'name, such as OPENAI_API_KEY')
    .requiredOption(
      '--host <host>',
      'host that gets it: api.example.com, or *.example.com, with an optional ":port"',
    )
    .requiredOption('--header <name>', 'header that carries it')
    .option('--prefix <text>', 'text before the value in the header, such as "Bearer "')
    .option('--method <methods>', 'only requests with these methods, separated by commas (default: all)')
    .option('--path <path>', 'only requests to this path and below it (default: all)')
    .option('--value-file <file>', 'read the value from this file')
    .action(
      handler<SetOptions>(async (cli, [name = ''], options) => {
        const { host, header, prefix, method, path, valueFile } = options;
        const methods = method?.split(',').map((one) => one.trim().toUpperCase());
        const value = await readValue(cli, name, valueFile);
        const request = withoutUndefined({ host, header, prefix, methods, path, value }) as SetSecretRequest;
        const secret = await (await cli.torpor()).secrets.set(name, request, { signal: cli.signal });
        cli.answer(secret, () => `${name} is set for ${secret.host}`);
        cli.note(`Use it: torpor create --secret ${name}`);
      }),
    );
  command
    .command('rm')
    .alias('delete')
    .summary('delete a secret; sandboxes that use it go on without it')
    .argument('<name>', 'name of the secret')
    .option('-y, --yes', 'do not ask')
    .action(
      handler<{ yes?: boolean }>(async (cli, [name = ''], { yes }) => {
        if (!yes) await confirm(cli, `Delete ${name}? Sandboxes that use it go on without it.`);
        const gone = await (await cli.torpor()).secrets.delete(name, { signal: cli.signal });
        cli.answer(gone, () => `${name} is deleted`);
      }),
    );
  addExamples(command, {
    examples: [
      [
        'torpor secret set OPENAI_API_KEY --host api.openai.com --header Authorization --prefix "Bearer "',
        'asks for the value',
      ],
      [
        'torpor secret set TOKEN --host api.example.com --header X-Token --path /v1 < token',
        'value from stdin',
      ],
      ['torpor create --secret OPENAI_API_KEY', 'a sandbox that can use it and cannot see it'],
    ],
    seeAlso: ['create', 'network'],
  });
};

/** One line; the line break at its end is not part of the value. */
async function readValue(cli: Cli, name: string, file: string | undefined): Promise<string> {
  const given = file === undefined ? await askedOrPiped(cli, name) : await readValueFile(file);
  const value = given.replace(/\r?\n$/, '');
  if (value === '') throw new CliError('INVALID_ARGUMENT', `The value of ${name} is empty.`);
  return value;
}

async function readValueFile(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new CliError('FILE_ERROR', `${file} cannot be read.`, { cause });
  });
}

async function askedOrPiped(cli: Cli, name: string): Promise<string> {
  if (!cli.interactive) return text(cli.io.stdin);
  const { password, isCancel } = await import('@clack/prompts');
  const message = `Value of ${name}`;
  const answer = await password({ message, output: cli.io.stderr, signal: cli.signal });
  if (isCancel(answer)) throw new CliError('CANCELLED', 'Cancelled. Nothing was changed.');
  return answer ?? '';
}

function rulesOf({ methods, path }: SecretView): string {
  return [methods?.join(','), path].filter((part) => part != null).join(' ') || 'all';
}
