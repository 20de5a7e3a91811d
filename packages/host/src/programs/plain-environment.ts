/** All that programs of the system are told of the server's environment, in which keys lie. */
export function plainEnvironment(): Record<string, string> {
  // Names are bytes: in another language, some programs would take the words of a name for characters.
  return { PATH: searchPath(), LC_ALL: 'C.UTF-8' };
}

const SEARCHED = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Programs of administrators lie where the search path of others does not lead. */
export function searchPath(): string {
  return [process.env['PATH'], SEARCHED].filter(Boolean).join(':');
}
