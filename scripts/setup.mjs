/**
 * Prepares a clone: `node scripts/setup.mjs start` or `node scripts/setup.mjs test`.
 *
 * The script runs before any package is installed, so it is plain JavaScript for Node 20 and imports only Node's own modules
 * and files in ./setup. It asks no questions, and is quick when nothing is to be done.
 *
 * With `TORPOR_SETUP=skip` the script installs no system packages and fetches no runsc, but still installs npm's
 * dependencies.
 */
import { realpathSync } from 'node:fs';
import { installDependencies, requireNode24 } from './setup/npm-dependencies.mjs';
import {
  installSystemPackages,
  isPurpose,
  PURPOSES,
  provideBase,
  provideNewerRunsc,
  provideRunsc,
} from './setup/system-packages.mjs';

const purpose = process.argv[2] ?? 'start';
if (!isPurpose(purpose)) {
  console.error(`setup: "${purpose}" is not one of: ${PURPOSES.join(', ')}`);
  process.exit(2);
}

/** @param {string} line */
const say = (line) => console.log(`setup: ${line}`);

try {
  const installed = await installDependencies(say);
  requireNode24();
  const missing = installSystemPackages(purpose, say);
  const fetched = provideRunsc(say);
  const built = purpose === 'test' && (await provideNewerRunsc(say));
  const made = purpose === 'test' && (await provideBase(realpathSync('node_modules/.bin/node'), say));
  if (!installed && !missing && !fetched && !built && !made) say(`nothing to do for "${purpose}"`);
} catch (error) {
  console.error(`setup: ${error instanceof Error ? error.message : error}`);
  process.exit(1);
}
