/** Where this package keeps its migrations. The server gives the directories of all packages to `migrate`. */
import { fileURLToPath } from 'node:url';

export const TEMPLATE_BUILDS_MIGRATIONS = fileURLToPath(new URL('../migrations', import.meta.url));
