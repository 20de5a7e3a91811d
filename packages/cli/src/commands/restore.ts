/** `torpor restore`: makes a data directory from a backup. */
import { resolve } from 'node:path';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { CliError } from '../failure.ts';

export const define: Define = (command, handler) => {
  command.argument('<directory>', 'what `torpor backup` wrote');
  addExamples(command, {
    examples: [
      [
        'torpor restore /backups/monday --data-dir /var/lib/torpor/data',
        'then `torpor up` with the same data directory',
      ],
    ],
    seeAlso: ['backup', 'up', 'rollback'],
  });
  command.action(
    handler(async (cli, [directory = '', ...more]) => {
      const { dataDir } = cli.options;
      if (dataDir === undefined || more.length > 0) {
        throw new CliError('INVALID_ARGUMENT', 'Say which data directory to make, with --data-dir.', {
          hint: 'To bring a sandbox back to a checkpoint, use `torpor rollback`.',
        });
      }
      const { restoreDataDirectory } = await import('@torpor/server');
      const words = { now: 'Reading the backup…' };
      const work = restoreDataDirectory(resolve(cli.io.cwd, directory), resolve(cli.io.cwd, dataDir), {
        progress: (now) => {
          words.now = now;
        },
        signal: cli.signal,
      });
      const result = await cli.withSpinner(() => words.now, work);
      cli.answer(result, () =>
        [
          `${result.dataDir} has ${result.checkpoints} checkpoints and ${result.layers} layers`,
          ...(result.dump === null
            ? []
            : [`restore the database with: pg_restore --dbname=<url> ${result.dump}`]),
          ...(result.database === 'none' ? ['the backup has no database: restore it from your own'] : []),
        ].join('\n'),
      );
    }),
  );
};
