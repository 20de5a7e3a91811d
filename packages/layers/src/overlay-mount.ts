/**
 * Mounting stacks of layers with the kernel's overlayfs, and what it can bear.
 *
 * - `redirect_dir=on`: a directory of a lower layer can be renamed. Without it `rename` says EXDEV for every
 *   directory that is older than the last pause, and package managers rename directories.
 * - `index=off`, `metacopy=off`: layers stay plain trees, which can be mounted in other stacks, be merged and
 *   be packed. A layer must then be an upper in one mount only, which is for the caller of `mount` to keep.
 * - `nosuid`, `nodev`: nothing that a sandbox leaves there means anything to the host.
 */
import { realpath } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Mount, MountNamespace } from '@torpor/host';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { FILES, layerName, WORK } from './layer-directory.ts';
import { isLayerId, type LayerId } from './layer-id.ts';
import type { MountedStack } from './layers.ts';
import { run } from './program.ts';

/**
 * The kernel takes options of one page. With paths relative to the directory of all layers that is room for
 * 141 of them (it would bear 500 by the calls that take them one by one, which `mount` of Debian 12 lacks).
 */
const OPTIONS_AT_MOST = 4095;

/** A stack of more is refused. Below what fits, for options that other kernels or security modules add. */
export const LAYERS_AT_MOST = 128;

/**
 * From here on a stack should be merged. Every look at a name that is not there costs some 5 µs for each layer
 * whose piece of the directory has to be searched, and programs look for much that is not there.
 */
export const LAYERS_TO_MERGE_FROM = 24;

/** Since 2.39 `mount` uses calls that take no option of more than 256 characters, unless told otherwise. */
const BY_ONE_CALL = { LIBMOUNT_FORCE_MOUNT2: 'always' };

export function optionsFor(lower: readonly LayerId[], upper: LayerId): string {
  const files = (id: LayerId) => `${layerName(id)}/${FILES}`;
  // What says how comes first: cut short, the options would name a directory that is not there.
  const options = [
    'redirect_dir=on,index=off,metacopy=off',
    `lowerdir=${lower.map(files).join(':')}`,
    `upperdir=${files(upper)}`,
    `workdir=${layerName(upper)}/${WORK}`,
  ].join(',');
  if (lower.length === 0 || lower.length > LAYERS_AT_MOST || options.length > OPTIONS_AT_MOST) {
    throw new TorporError('conflict', `A stack of ${lower.length} layers cannot be mounted.`, {
      hint: `It takes at least one layer below the writable one, and at most ${LAYERS_AT_MOST}.`,
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
  await run('mount', args, { cwd: root, env: BY_ONE_CALL, launcher });
}

/** As the kernel calls it. */
export async function placeOf(at: string): Promise<string> {
  return realpath(at).catch((thrown: unknown) => {
    if (isMissing(thrown)) return at;
    throw thrown;
  });
}

export function topmostAt(place: string, mounts: readonly Mount[]): Mount | undefined {
  return mounts.findLast((mount) => mount.at === place);
}

/** Every overlay that is made of layers, be they of this server or of another. */
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
