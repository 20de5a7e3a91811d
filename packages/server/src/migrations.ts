/** The migrations of the whole product: those of the server itself and those of the packages it is put together from. */
import { fileURLToPath } from 'node:url';
import { BUILDS_MIGRATIONS } from '@torpor/builds/migrations';
import { ENGINE_MIGRATIONS } from '@torpor/engine/migrations';
import { SECRETS_MIGRATIONS } from '@torpor/secrets/migrations';
import { SESSIONS_MIGRATIONS } from '@torpor/sessions/migrations';
import { TEMPLATE_BUILDS_MIGRATIONS } from '@torpor/template-builds/migrations';

export const SERVER_MIGRATIONS = fileURLToPath(new URL('../migrations', import.meta.url));

/**
 * `migrate` merges these directories by the number of each file: 0008 of the engine reads tables of the other three
 * packages, so no package's migrations can be applied alone.
 */
export const ALL_MIGRATIONS: readonly string[] = [
  ENGINE_MIGRATIONS,
  SERVER_MIGRATIONS,
  BUILDS_MIGRATIONS,
  SESSIONS_MIGRATIONS,
  SECRETS_MIGRATIONS,
  TEMPLATE_BUILDS_MIGRATIONS,
];
