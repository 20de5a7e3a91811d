/** `torpor doctor`: checks this machine and the server, and says how to fix each problem. */
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import type { Colors } from '../colors.ts';
import { findConnection } from '../connection.ts';
import type { Check } from '../doctor/check.ts';
import { checkGvisor } from '../doctor/gvisor.ts';
import { checkDatabase, checkDataDirectory, checkNode } from '../doctor/machine.ts';
import { checkServer } from '../doctor/server.ts';
import { isChanged, settingsText } from '../doctor/settings.ts';
import { checkStore } from '../doctor/store.ts';
import { EXIT } from '../exit-codes.ts';

export const define: Define = (command, handler) => {
  command.option('--settings', 'list every setting of the server, with its range and its source');
  addExamples(command, {
    examples: [
      ['torpor doctor', 'exits with 1 when a check fails'],
      ['torpor doctor --settings', 'also list every setting of the server'],
    ],
    seeAlso: ['up', 'fsck', 'runtimes'],
  });
  command.action(
    handler<{ settings?: boolean }>(async (cli, _, options) => {
      const connection = await findConnection(cli.io, cli.options);
      const { dataDir } = connection;
      const server = await cli.withSpinner('Checking the server…', checkServer(connection, cli.io.env));
      const checks: Check[] = [
        checkNode(process.version),
        await checkDataDirectory(dataDir),
        ...(await checkDatabase(cli.io.env['TORPOR_DATABASE_URL'])),
        ...(await cli.withSpinner('Checking the store…', checkStore(dataDir, cli.io.env, cli.signal))),
        ...(await cli.withSpinner(
          'Checking gVisor…',
          checkGvisor(dataDir, cli.io.env['TORPOR_RUNTIME'], cli.signal),
        )),
        ...server.checks,
      ];
      const ok = checks.every(({ is }) => is !== 'wrong');
      const settings = server.settings.filter((one) => options.settings || isChanged(one));
      cli.answer({ ok, url: connection.url, dataDir, checks, settings }, () =>
        [
          ...checks.map((check) => checkText(check, cli.io.colors)),
          ...(options.settings ? [settingsText(settings, cli.io.colors)] : []),
        ].join('\n'),
      );
      return ok ? EXIT.ok : EXIT.general;
    }),
  );
};

function checkText({ is, what, detail, todo }: Check, colors: Colors): string {
  const mark = { good: colors.green('✓'), wrong: colors.red('✗'), note: colors.yellow('•') }[is];
  const advice = todo === undefined ? '' : `\n    ${colors.yellow('→')} ${todo}`;
  return `${mark} ${what}${detail === '' ? '' : colors.dim(`: ${detail}`)}${advice}`;
}
