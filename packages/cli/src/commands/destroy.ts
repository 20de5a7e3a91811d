/** `torpor destroy`: removes a data directory that no sandbox runs from. */
import { resolve } from 'node:path';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { confirm } from '../confirm.ts';
import { CliError } from '../failure.ts';

interface DestroyOptions {
  yes?: boolean;
  force?: boolean;
  database?: string;
}

export const define: Define = (command, handler) => {
  command
    .option('-y, --yes', 'do not ask')
    .option('--force', 'ignore records of running sandboxes when none of their processes is left')
    .option('--database <url>', 'PostgreSQL database of the server, if it has one; its rows stay');
  addExamples(command, {
    examples: [
      [
        'torpor destroy --data-dir ./data',
        'after `torpor down`: removes all sandboxes, checkpoints and keys',
      ],
      ['torpor destroy --data-dir ./data --yes', 'in a script'],
    ],
    seeAlso: ['down', 'doctor'],
  });
  command.action(
    handler<DestroyOptions>(async (cli, _, { yes, force = false, database }) => {
      const { dataDir } = cli.options;
      if (dataDir === undefined) {
        throw new CliError('INVALID_ARGUMENT', 'Name the data directory with --data-dir.');
      }
      const path = resolve(cli.io.cwd, dataDir);
      const { destroyDataDirectory, requireDataDirectory } = await import('@torpor/server');
      const place = await requireDataDirectory(path);
      if (!yes && !cli.interactive) {
        throw new CliError('INVALID_ARGUMENT', `This needs a confirmation. Add --yes to destroy ${place}.`);
      }
      if (!yes) await confirm(cli, `Destroy ${place}? Every sandbox, checkpoint and key in it will be lost.`);
      const url = database ?? (cli.io.env['TORPOR_DATABASE_URL'] || undefined);
      const work = destroyDataDirectory(place, { database: url, force, signal: cli.signal });
      await cli.withSpinner(`Removing ${place}…`, work);
      cli.answer({ destroyed: place }, () => `${place} is destroyed`);
    }),
  );
};
