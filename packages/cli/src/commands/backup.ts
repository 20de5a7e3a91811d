/** `torpor backup`: saves a data directory, also while its server runs. */
import { resolve } from 'node:path';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { findConnection } from '../connection.ts';
import { EXIT } from '../exit-codes.ts';
import { bytes } from '../human-units.ts';

interface BackupOptions {
  database?: string | false;
}

export const define: Define = (command, handler) => {
  command
    .argument('<directory>', 'an empty directory, or one that is not there yet; best on another disk')
    .option('--database <url>', 'the PostgreSQL database of the server, if it has one')
    .option('--no-database', 'leave the PostgreSQL database out, because you save it in another way');
  addExamples(command, {
    examples: [
      ['torpor backup /backups/monday', 'the server may run: checkpoints, database, keys, programs'],
      ['torpor backup /backups/monday --database postgresql://…', 'runs pg_dump for the database'],
    ],
    seeAlso: ['restore', 'fsck'],
  });
  command.action(
    handler<BackupOptions>(async (cli, [directory = ''], { database }) => {
      const { dataDir } = await findConnection(cli.io, cli.options);
      const { backUpDataDirectory } = await import('@torpor/server');
      const url = typeof database === 'string' ? database : cli.io.env['TORPOR_DATABASE_URL'] || undefined;
      const words = { now: 'Saving…' };
      const work = backUpDataDirectory(dataDir, resolve(cli.io.cwd, directory), {
        database: url,
        withDatabase: database !== false,
        progress: (now) => {
          words.now = now;
        },
        signal: cli.signal,
      });
      const result = await cli.withSpinner(() => words.now, work);
      cli.answer(result, () =>
        [
          ...result.unsaved.map(
            ({ id, part, code, message }) =>
              `${part === 'memory' ? `the memory of ${id}` : id} is not saved (${code}): ${message}`,
          ),
          `${result.directory} has ${result.checkpoints} checkpoints and ${result.layers} layers, ${bytes(result.bytes)}`,
          ...(result.secrets.length === 0
            ? []
            : [`a restore needs the secrets in it: ${result.secrets.join(', ')}; keep the backup private`]),
          ...result.missingDataKeys.map(
            (id) => `the data key ${id} of the store is not in it: keep its file (--data-key-file) too`,
          ),
          ...(result.needsClusterSecret
            ? ['a restore needs TORPOR_CLUSTER_SECRET, which is not in it: keep it elsewhere']
            : []),
          ...(result.database === 'none' ? ['the database is not in it'] : []),
        ].join('\n'),
      );
      return result.unsaved.length === 0 ? EXIT.ok : EXIT.general;
    }),
  );
};
