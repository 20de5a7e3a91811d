import { join } from 'node:path';
import type { Argument, Command, Option } from 'commander';
import { describe, expect, it } from 'vitest';
import { buildCommand, COMMON_OPTIONS, examplesOf } from './build-command.ts';
import { COMMANDS } from './command-table.ts';
import { EXIT } from './exit-codes.ts';
import { realIo } from './io.ts';

const PAGE = join(import.meta.dirname, '../../../docs/cli.md');

async function referencePage(): Promise<string> {
  const groups = [...new Set(COMMANDS.map(({ group }) => group))];
  const sections: string[] = [];
  let commonOptions: readonly Option[] = [];
  for (const group of groups) {
    sections.push(`## ${group}`);
    for (const entry of COMMANDS.filter((one) => one.group === group)) {
      const outcome = { exitCode: EXIT.ok, json: false };
      const command = await buildCommand(entry, realIo(), new AbortController().signal, outcome);
      commonOptions = command.options.filter(isCommon);
      sections.push(commandSection(command));
    }
  }
  return [
    '# CLI reference',
    'Every command of `torpor`. `torpor <command> --help` shows the same on the terminal. `torpor sandbox <command>` is the same as `torpor <command>`.',
    'This page is generated from the code: `vitest run packages/cli/src/reference-page.test.ts -u`.',
    '## Options of every command',
    table(['option', 'meaning'], [...commonOptions, HELP].map(optionRow)),
    '## Exit codes',
    table(
      ['code', 'meaning'],
      Object.entries(EXIT).map(([name, code]) => [String(code), EXIT_MEANINGS[name as keyof typeof EXIT]]),
    ),
    '`torpor exec` and `torpor shell` exit with the code of the command in the sandbox.',
    ...sections,
  ]
    .join('\n\n')
    .concat('\n');
}

const HELP: DocumentedOption = { flags: '-h, --help', description: 'show help', defaultValue: undefined };

/** A total map, so that a new exit code does not compile without an entry. */
const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: 'success',
  general: 'general error, or a failed check',
  invalid: 'invalid arguments or request',
  authentication: 'missing or invalid API key',
  notFound: 'not found',
  permission: 'not allowed',
  api: 'error of the server or the network',
  file: 'a local file cannot be read or written',
  cancelled: 'cancelled by the user',
  buildFailed: 'the build failed',
};

function commandSection(command: Command): string {
  const aliases = command.aliases().map((alias) => `\`${alias}\``);
  const { examples = [], seeAlso = [] } = examplesOf(command) ?? {};
  const subcommands = command.commands.map(subcommandSection);
  const own = ownTables(command);
  return [
    `### torpor ${command.name()}`,
    `${command.description()}${aliases.length === 0 ? '' : ` Aliases: ${aliases.join(', ')}.`}`,
    ...(subcommands.length > 0 && own.length === 0 ? [] : [usage(command)]),
    ...own,
    ...subcommands,
    ...(examples.length === 0
      ? []
      : [['```sh', ...examples.map(([line, what]) => `${line}  # ${what}`), '```'].join('\n')]),
    ...(seeAlso.length === 0
      ? []
      : [`See also: ${seeAlso.map((name) => `[torpor ${name}](#torpor-${name})`).join(', ')}.`]),
  ].join('\n\n');
}

function subcommandSection(command: Command): string {
  const aliases = command.aliases().map((alias) => `\`${alias}\``);
  const alias = aliases.length === 0 ? '' : ` (alias ${aliases.join(', ')})`;
  return [`${usage(command)}: ${command.summary()}${alias}.`, ...ownTables(command)].join('\n\n');
}

function usage(command: Command): string {
  const words = ['torpor', command.parent?.name(), command.name()].filter(
    (word, i, all) => word !== undefined && word !== all[i - 1],
  );
  return `\`${words.join(' ')} ${command.usage()}\``;
}

/** The arguments and the options that only this command has. */
function ownTables(command: Command): string[] {
  const described = command.registeredArguments.filter(({ description }) => description !== '');
  const options = command.options.filter((option) => !isCommon(option));
  const rows = [...described.map(argumentRow), ...options.map(optionRow)];
  return rows.length === 0 ? [] : [table(['argument or option', 'meaning'], rows)];
}

function isCommon({ helpGroupHeading }: Option): boolean {
  return helpGroupHeading === COMMON_OPTIONS;
}

function argumentRow(argument: Argument): string[] {
  const { argChoices = [], description } = argument;
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
  return [argument.required ? `<${name}>` : `[${name}]`, withChoices(description, argChoices)];
}

type DocumentedOption = Pick<Option, 'flags' | 'description' | 'argChoices' | 'defaultValue'>;

function optionRow({ flags, description, argChoices = [], defaultValue }: DocumentedOption): string[] {
  const hasDefault = typeof defaultValue === 'string' || typeof defaultValue === 'number';
  return [flags, `${withChoices(description, argChoices)}${hasDefault ? ` (default: ${defaultValue})` : ''}`];
}

function withChoices(description: string, choices: readonly string[]): string {
  return choices.length === 0 ? description : `${description}; one of ${choices.join(', ')}`;
}

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const cell = (text: string) => text.replaceAll('|', '\\|');
  return [
    `| ${header.join(' | ')} |`,
    `|${header.map(() => '---').join('|')}|`,
    ...rows.map(([first = '', ...rest]) => `| \`${cell(first)}\` | ${rest.map(cell).join(' | ')} |`),
  ].join('\n');
}

describe('docs/cli.md', () => {
  it('lists every command with its arguments, options and examples', async () => {
    await expect(await referencePage()).toMatchFileSnapshot(PAGE);
  });
});
