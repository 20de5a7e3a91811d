/**
 * The environment and working directory of a new process. Of the agent's own variables it gets only PATH, LANG and TZ.
 */
import { access, constants } from 'node:fs/promises';
import { SANDBOX_VARIABLE } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { errnoOf } from '../files/file-errors.ts';
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
    // Last, so that callers cannot override it: a runtime finds the processes of a sandbox by this variable.
    [SANDBOX_VARIABLE]: identity.sandboxId,
  };
}

/** A requested directory must be usable. Without a request, an unusable home falls back to `/`. */
export async function workingDirectory(asked: string | undefined, usual: string): Promise<string> {
  const wanted = asked ?? usual;
  const fault = await directoryFault(wanted);
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
 * Why no process can run in the directory. Checked before the start, because a failed start does not tell whether the
 * program or the directory is at fault.
 */
async function directoryFault(directory: string): Promise<string | undefined> {
  try {
    // With the slash, the call fails for anything that is not a directory.
    await access(`${directory}/`, constants.X_OK);
    return undefined;
  } catch (thrown) {
    const errno = errnoOf(thrown) ?? '';
    return FAULTS[errno] ?? `cannot be used (${errno})`;
  }
}
