/** The start page that `torpor` prints without arguments, and the list of all commands. */
import type { Colors } from './colors.ts';
import { COMMANDS } from './command-table.ts';

export function startPage(colors: Colors): string {
  const step = (line: string, what: string) => `  ${colors.cyan(line.padEnd(34))}${colors.dim(what)}`;
  return [
    `${colors.bold('torpor')}: sandboxes that sleep, and always wake.`,
    '',
    step('torpor up', 'start the server (once)'),
    step('torpor build "a live dashboard"', 'build an application'),
    step('torpor create --name hello', 'create a sandbox'),
    step("torpor exec hello 'uname -a'", 'run a command in it'),
    step('torpor shell hello', 'open a terminal in it'),
    step('torpor pause hello', 'pause it, with memory and files'),
    step('torpor resume hello', 'resume it'),
    '',
    `${colors.bold('torpor --help')} lists all commands, ${colors.bold('torpor <command> --help')} explains one.`,
    `${colors.bold('torpor doctor')} finds problems and says how to fix them.`,
  ].join('\n');
}

export function overview(colors: Colors): string {
  const groups = [...new Set(COMMANDS.map(({ group }) => group))];
  const width = Math.max(...COMMANDS.map(({ name }) => name.length));
  const lines = groups.flatMap((group) => [
    '',
    colors.bold(`${group}:`),
    ...COMMANDS.filter((entry) => entry.group === group).map(
      ({ name, aliases = [], summary }) =>
        `  ${colors.cyan(name.padEnd(width))}  ${summary}${aliases.length > 0 ? colors.dim(` (${aliases.join(', ')})`) : ''}`,
    ),
  ]);
  return [
    'Usage: torpor <command> [options]',
    ...lines,
    '',
    'Every command has --json and --help. `torpor sandbox <command>` is the same as `torpor <command>`.',
    `Exit codes: 0 ok, 1 general, 10 invalid, 11 authentication, 12 not found, 13 permission,`,
    `14 API or network, 15 file, 16 cancelled, 17 build failed; exec has the command's own.`,
  ].join('\n');
}
