/**
 * Makes a clone ready for a purpose: `node scripts/setup.mjs start` or `… test`.
 *
 * It runs before anything is installed, so it is plain JavaScript for Node 20 and imports only Node's own
 * modules and what lies in ./setup. It asks nothing, and is quick when there is nothing to do.
 *
 * `TORPOR_SETUP=skip` leaves the system's packages alone and fetches no runsc; npm's dependencies are installed
 * all the same.
 */
import { installDependencies, requireNode24 } from './setup/npm-dependencies.mjs';
import {
  installSystemPackages,
  isPurpose,
  PURPOSES,
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
  if (!installed && !missing && !fetched && !built) say(`nothing to do for "${purpose}"`);
} catch (error) {
  console.error(`setup: ${error instanceof Error ? error.message : error}`);
  process.exit(1);
}
