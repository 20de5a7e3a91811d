/**
 * One private PostgreSQL for a test run. Tests get its address by `inject('postgresUrl')`, and make a
 * database or schema of their own in it; null means that this machine has no PostgreSQL.
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
