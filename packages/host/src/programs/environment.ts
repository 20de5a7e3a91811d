const SYSTEM_DIRECTORIES = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * The environment of every system program. The server's own environment is not passed on because it contains keys, and
 * a program may leave processes running.
 */
export function minimalEnvironment(): Record<string, string> {
  // File names are bytes: with another locale, some programs would decode them as characters.
  return { PATH: searchPath(), LC_ALL: 'C.UTF-8' };
}

/** The server's `PATH`, and the system directories (`sbin`) that the `PATH` of ordinary users leaves out. */
export function searchPath(): string {
  return [process.env['PATH'], SYSTEM_DIRECTORIES].filter(Boolean).join(':');
}
