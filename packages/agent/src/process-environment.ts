/** The environment a process starts with, and where. Nothing of the agent's own leaks into it but PATH, LANG and TZ. */
import { stat } from 'node:fs/promises';
import { SANDBOX_VARIABLE } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import type { SandboxIdentity } from './identity.ts';
import type { User } from './users.ts';

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

/** A directory that was asked for must be there; a home that is not falls back to the root. */
export async function workingDirectory(asked: string | undefined, usual: string): Promise<string> {
  if (await isDirectory(asked ?? usual)) return asked ?? usual;
  if (asked === undefined) return '/';
  throw new TorporError('invalid_request', `The working directory ${asked} does not exist.`);
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}
