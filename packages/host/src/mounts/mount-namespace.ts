/** Where mounts are made and seen: the mount namespace of this process, or one that only programs enter. */
import { readFileSync } from 'node:fs';
import { TorporError } from '@torpor/protocol';
import { type Launcher, sharedLauncher } from '../programs/launcher.ts';
import { type Mount, parseMounts } from './mount-table.ts';

export interface MountNamespace {
  /** Prefix of a command that runs a program in this namespace. Empty for the namespace of this process. */
  readonly enterCommand: readonly string[];
  /** Starts programs in this namespace. */
  readonly launcher: Launcher;
  /** The text of `mountinfo`. Synchronous because the kernel answers from memory and every start waits for the answer. */
  mountinfo(): string;
  /** The path by which this process opens a file that programs in the namespace know as `path` (absolute). */
  hostPath(path: string): string;
}

/** The mount namespace of this process. */
export const hostMountNamespace: MountNamespace = {
  enterCommand: [],
  launcher: sharedLauncher,
  mountinfo: () => readFileSync('/proc/self/mountinfo', 'utf8'),
  hostPath: (path) => path,
};

/** The mounts at this path and below it, topmost last. */
export function mountsBelow(mountinfo: string, path: string): Mount[] {
  return parseMounts(mountinfo).filter(({ at }) => at === path || at.startsWith(`${path}/`));
}

/** Throws when deleting this tree would delete through a mount, in the given namespace or in that of this process. */
export function refuseMountsBelow(namespace: MountNamespace, path: string): void {
  const tables = new Set([namespace.mountinfo(), hostMountNamespace.mountinfo()]);
  const [mount] = [...tables].flatMap((table) => mountsBelow(table, path));
  if (mount === undefined) return;
  throw new TorporError('conflict', `${path} is not deleted: something is mounted at ${mount.at}.`, {
    details: { path, mount: mount.at },
  });
}
