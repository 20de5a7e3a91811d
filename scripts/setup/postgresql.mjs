/** Finds PostgreSQL's server programs. Debian keeps them outside of the PATH, in one directory per version. */
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { commandOnPath } from './command-on-path.mjs';

const DEBIAN = '/usr/lib/postgresql';
const PROGRAMS = ['initdb', 'postgres', 'pg_isready'];

/**
 * The directory with initdb, postgres and pg_isready, of the newest version when there are several.
 * @returns {string | undefined}
 */
export function findPostgres() {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN) : [];
  const debian = versions
    .sort((one, other) => Number(other) - Number(one))
    .map((version) => join(DEBIAN, version, 'bin'));
  const onPath = commandOnPath('initdb');
  return [...debian, ...(onPath === undefined ? [] : [dirname(onPath)])].find((dir) =>
    PROGRAMS.every((program) => existsSync(join(dir, program))),
  );
}
