import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, inject, it } from 'vitest';
import { findPostgres } from '../../scripts/setup/postgresql.mjs';

const url = inject('postgresUrl');

function ask(sql: string): string {
  const psql = join(findPostgres() ?? '', 'psql');
  return execFileSync(psql, [url ?? '', '--no-psqlrc', '-tAc', sql], { encoding: 'utf8' }).trim();
}

describe.skipIf(url === null)('the PostgreSQL of the test run', () => {
  it('answers at its address', () => {
    expect(ask('SELECT current_user')).toBe('torpor');
  });

  it('is as durable as in production', () => {
    expect(ask('SHOW fsync')).toBe('on');
    expect(ask('SHOW synchronous_commit')).toBe('on');
  });

  it('is not reachable from the network', () => {
    expect(ask('SHOW listen_addresses')).toBe('');
  });
});
