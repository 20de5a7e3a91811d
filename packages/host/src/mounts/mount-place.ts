/** Where mounts are made and seen: the mount namespace of this process, or one that only programs enter. */
import { readFileSync } from 'node:fs';
import { TorporError } from '@torpor/protocol';
import { type Launcher, usualLauncher } from '../programs/launch.ts';
import { type Mount, parseMounts } from './mount-table.ts';

export interface MountPlace {
  /** What a program is started through to run in this namespace. Empty for the namespace of this process. */
  readonly entry: readonly string[];
  /** Starts programs that see the mounts of this place. */
  readonly launcher: Launcher;
  /** The text of `mountinfo`. Synchronous: the kernel answers at once, and every start waits for the answer. */
  table(): string;
  /** How this process reaches an absolute path as programs in the namespace see it. */
  reach(path: string): string;
}

/** The mount namespace of this process. */
export const hostMountPlace: MountPlace = {
  entry: [],
  launcher: usualLauncher,
  table: () => readFileSync('/proc/self/mountinfo', 'utf8'),
  reach: (path) => path,
};

/** The mounts at this path and below it, topmost last. */
export function mountsBelow(table: string, path: string): Mount[] {
  return parseMounts(table).filter(({ at }) => at === path || at.startsWith(`${path}/`));
}

/** Throws when deleting this tree would delete through a mount, in the given namespace or in that of this process. */
export function refuseMountsBelow(place: MountPlace, path: string): void {
  const tables = new Set([place.table(), hostMountPlace.table()]);
  const [mount] = [...tables].flatMap((table) => mountsBelow(table, path));
  if (mount === undefined) return;
  throw new TorporError('conflict', `${path} is not deleted: something is mounted at ${mount.at}.`, {
    details: { path, mount: mount.at },
  });
}
