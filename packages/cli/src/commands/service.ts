/** `torpor service install`: writes a systemd unit that runs the server. */
import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { CliError } from '../failure.ts';
import { PROGRAM_FILE } from '../program-file.ts';
import { systemdUnit } from '../systemd-unit.ts';

interface InstallOptions {
  readonly dataDir?: string;
  readonly unit: string;
  readonly envFile: string;
  readonly dryRun?: boolean;
}

export const define: Define = (command, handler) => {
  command
    .command('install')
    .summary('write a systemd unit that runs this torpor')
    .option('--unit <file>', 'file of the unit', '/etc/systemd/system/torpor.service')
    .option(
      '--env-file <file>',
      'file with the environment of the server, read if it exists',
      '/etc/torpor.env',
    )
    .option('--dry-run', 'only print the unit')
    .action(
      handler<InstallOptions>(async (cli, _, { unit, envFile, dryRun, dataDir = '/var/lib/torpor/data' }) => {
        const text = systemdUnit({
          node: process.execPath,
          program: PROGRAM_FILE,
          dataDir: resolve(cli.io.cwd, dataDir),
          envFile: resolve(cli.io.cwd, envFile),
        });
        const file = resolve(cli.io.cwd, unit);
        if (!dryRun) {
          await writeFile(file, text, { mode: 0o644 }).catch((cause: NodeJS.ErrnoException) => {
            throw new CliError('FILE_ERROR', `${file} cannot be written (${cause.code}).`, {
              hint: 'Run it as root, or choose another file with --unit.',
              cause,
            });
          });
        }
        cli.answer({ file, unit: text, written: !dryRun }, () =>
          dryRun ? text.trimEnd() : `${file} is written`,
        );
        if (!dryRun) cli.note('Start it: systemctl daemon-reload && systemctl enable --now torpor');
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor service install --dry-run', 'print the unit'],
      ['sudo torpor service install --data-dir /var/lib/torpor/data', 'write it'],
    ],
    seeAlso: ['up', 'doctor'],
  });
};
