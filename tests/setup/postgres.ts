/**
 * Starts one private PostgreSQL for a test run. Tests get its address with `inject('postgresUrl')` and create their own
 * database or schema in it. Null means that PostgreSQL is not installed.
 */
import type { TestProject } from 'vitest/node';
import { startPrivatePostgres } from './private-postgres.ts';

declare module 'vitest' {
  interface ProvidedContext {
    postgresUrl: string | null;
  }
}

export default async function startPostgres({ provide }: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPrivatePostgres();
  if (postgres === undefined) {
    const missing = 'PostgreSQL is not installed: `npm run setup` installs it or says how.';
    if (process.env['CI'] === 'true') throw new Error(missing);
    console.warn(`\n!!! TESTS ARE SKIPPED. ${missing}\n`);
    provide('postgresUrl', null);
    return async () => {};
  }
  provide('postgresUrl', postgres.url);
  return () => postgres.stop();
}
