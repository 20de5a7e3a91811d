/**
 * Mounts stacks of layers with the kernel's overlayfs, within its limits.
 *
 * - `redirect_dir=on`: a directory of a lower layer can be renamed. Without it `rename` says EXDEV for every
 *   directory that is older than the last pause, and package managers rename directories.
 * - `index=off`, `metacopy=off`: layers stay plain trees, which can be mounted in other stacks, merged and packed. The caller
 *   of `mount` must then make sure that a layer is the upper of one mount only.
 * - `nosuid`, `nodev`: setuid programs and devices that a sandbox leaves there have no effect on the host.
 */
import { realpath } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Mount, MountNamespace } from '@torpor/host';
import { isMissing, programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { FILES, layerName, WORK } from './layer-directory.ts';
import { isLayerId, type LayerId } from './layer-id.ts';
import type { MountedStack } from './layers.ts';

/**
 * The kernel accepts mount options of one page. With paths relative to the directory of all layers 141 layers
 * fit. The newer calls that take options one by one allow 500, but `mount` of Debian 12 does not have them.
 */
const MAX_OPTIONS_LENGTH = 4095;

/** A larger stack is refused. Less than what fits, because other kernels and security modules may add options. */
export const MAX_LAYERS = 128;

/**
 * From this size on a stack should be merged. Looking up a name that does not exist costs some 5 µs for each layer that
 * contains the directory, and programs look up many names that do not exist.
 */
export const MERGE_THRESHOLD = 24;

/** Since version 2.39 `mount` uses calls that refuse options longer than 256 characters, unless this variable is set. */
const MOUNT_ENVIRONMENT = { LIBMOUNT_FORCE_MOUNT2: 'always' };

export function optionsFor(lower: readonly LayerId[], upper: LayerId): string {
  const files = (id: LayerId) => `${layerName(id)}/${FILES}`;
  // The directories come last: if the kernel cut the options off, a directory would be missing and the mount would fail.
  const options = [
    'redirect_dir=on,index=off,metacopy=off',
    `lowerdir=${lower.map(files).join(':')}`,
    `upperdir=${files(upper)}`,
    `workdir=${layerName(upper)}/${WORK}`,
  ].join(',');
  if (lower.length === 0 || lower.length > MAX_LAYERS || options.length > MAX_OPTIONS_LENGTH) {
    throw new TorporError('conflict', `A stack of ${lower.length} layers cannot be mounted.`, {
      hint: `It takes at least one layer below the writable one, and at most ${MAX_LAYERS}.`,
      details: { layers: lower.length },
    });
  }
  return options;
}

export async function mountOverlay(
  root: string,
  at: string,
  options: string,
  { launcher }: MountNamespace,
): Promise<void> {
  const args = ['-i', '-n', '-t', 'overlay', '-o', `nosuid,nodev,${options}`, 'overlay', resolve(at)];
  await programOutput('mount', args, { cwd: root, env: MOUNT_ENVIRONMENT, launcher });
}

/** The path as the kernel's mount table has it. */
export async function realPathOf(at: string): Promise<string> {
  return realpath(at).catch((thrown: unknown) => {
    if (isMissing(thrown)) return at;
    throw thrown;
  });
}

export function topmostAt(place: string, mounts: readonly Mount[]): Mount | undefined {
  return mounts.findLast((mount) => mount.at === place);
}

/** Every overlay mount of layers, of this server or of another. */
export function stacksOf(mounts: readonly Mount[]): MountedStack[] {
  return mounts.flatMap((mount) => stackOf(mount) ?? []);
}

export function stackOf({ at, type, options }: Mount): MountedStack | undefined {
  if (type !== 'overlay') return undefined;
  const upper = idOf(options.get('upperdir') ?? '');
  const lower = (options.get('lowerdir') ?? '').split(':').map(idOf);
  if (upper === undefined || lower.includes(undefined)) return undefined;
  return { at, upper, lower: lower as LayerId[] };
}

function idOf(path: string): LayerId | undefined {
  const id = path.slice(0, -`/${FILES}`.length);
  return isLayerId(id) && path.endsWith(`/${FILES}`) ? id : undefined;
}
