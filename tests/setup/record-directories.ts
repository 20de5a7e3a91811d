/**
 * Records which test file made which temporary directory. Everything that tests leave behind (processes, mounts, network
 * namespaces) names such a directory, so `leftovers.ts` finds it at the end of the run and can say where it is from.
 */
import fs, { appendFileSync, realpathSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { expect, inject } from 'vitest';

const RECORDS = Symbol.for('torpor.records-directories');
const record = inject('temporaryDirectories');

/** In a worker that runs several test files, only the first one replaces the functions. */
if (!(RECORDS in fs)) {
  const note = (directory: string) => {
    appendFileSync(record, `${realpathSync(directory)}\t${expect.getState().testPath ?? ''}\n`);
    return directory;
  };
  const { mkdtempSync } = fs;
  const { mkdtemp } = fs.promises;
  Object.assign(fs, {
    [RECORDS]: true,
    mkdtempSync: (prefix: string) => note(mkdtempSync(prefix)),
  });
  Object.assign(fs.promises, { mkdtemp: async (prefix: string) => note(await mkdtemp(prefix)) });
  syncBuiltinESMExports();
}
