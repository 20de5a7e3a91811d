/** The environment a process starts with, and where. Nothing of the agent's own leaks into it but PATH, LANG and TZ. */
import { access, constants } from 'node:fs/promises';
import { SANDBOX_VARIABLE } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { errnoOf } from '../agent-failures.ts';
import type { SandboxIdentity } from '../identity/sandbox-identity.ts';
import type { User } from '../identity/users.ts';

const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export function processEnvironment(
  user: User,
  identity: SandboxIdentity,
  asked: Readonly<Record<string, string>>,
  own: NodeJS.ProcessEnv,
): Record<string, string> {
  return {
    PATH: own['PATH'] || DEFAULT_PATH,
    ...(own['LANG'] ? { LANG: own['LANG'] } : {}),
    ...(own['TZ'] ? { TZ: own['TZ'] } : {}),
    HOME: user.home,
    USER: user.name,
    LOGNAME: user.name,
    SHELL: user.shell,
    ...(identity.hostname === undefined ? {} : { HOSTNAME: identity.hostname }),
    ...identity.envs,
    ...asked,
    // Last, so that no process can be started which a runtime does not find again.
    [SANDBOX_VARIABLE]: identity.sandboxId,
  };
}

/** A directory that was asked for must be one; a home that is not falls back to the root. */
export async function workingDirectory(asked: string | undefined, usual: string): Promise<string> {
  const wanted = asked ?? usual;
  const fault = await faultOf(wanted);
  if (fault === undefined) return wanted;
  if (asked === undefined) return '/';
  throw new TorporError('invalid_request', `The working directory ${asked} ${fault}.`);
}

const FAULTS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'is not a directory',
  EACCES: 'may not be entered by this user',
};

/**
 * Why nothing can run there. Asked before, because a start that fails does not say which of the two it could
 * not find or use, the program or the directory.
 */
async function faultOf(directory: string): Promise<string | undefined> {
  try {
    // The slash asks for a directory.
    await access(`${directory}/`, constants.X_OK);
    return undefined;
  } catch (thrown) {
    const errno = errnoOf(thrown) ?? '';
    return FAULTS[errno] ?? `cannot be used (${errno})`;
  }
}
