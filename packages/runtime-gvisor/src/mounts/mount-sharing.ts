/**
 * Mounts that come and go in one directory, for every mount namespace that was copied meanwhile.
 *
 * A new mount namespace begins as a copy, and a file system is not let go before its last copy is
 * unmounted. Where the machine's mounts are private (as under some first processes; systemd shares them), a
 * copy made while one sandbox starts keeps the unmounted root of another for as long as it lives. Mounts below a
 * shared mount are unmounted in all copies at once.
 */
import { realpath } from 'node:fs/promises';
import { dirname } from 'node:path';
import { hostMountPlace, type MountPlace, runCommand } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const BOUND_MS = 10_000;

interface MountPoint {
  readonly path: string;
  readonly isShared: boolean;
}

/** Makes a directory such a place; nothing to do where it is in one already. May be repeated. */
export async function shareMounts(
  directory: string,
  signal: AbortSignal,
  place: MountPlace = hostMountPlace,
): Promise<void> {
  const at = await realpath(directory);
  const holding = holdingMount(parseMountPoints(place.table()), at);
  if (holding?.isShared === true) return;
  if (holding?.path !== at) await mount(['--bind', at, at], signal, place);
  await mount(['--make-shared', at], signal, place);
}

/** Undoes `shareMounts`. What is still mounted below must be unmounted first. */
export async function unshareMounts(directory: string, signal: AbortSignal): Promise<void> {
  const at = await realpath(directory);
  if (holdingMount(parseMountPoints(hostMountPlace.table()), at)?.path !== at) return;
  const { status, stderr } = await runCommand('umount', [at], { signal, boundMs: BOUND_MS });
  if (status !== 0) throw failure('umount', at, stderr);
}

async function mount(args: readonly string[], signal: AbortSignal, { launcher }: MountPlace): Promise<void> {
  const { status, stderr } = await runCommand('mount', args, { signal, boundMs: BOUND_MS, launcher });
  if (status !== 0) throw failure('mount', args.at(-1) ?? '', stderr);
}

function failure(program: string, path: string, stderr: string): TorporError {
  return new TorporError('internal', `${program} failed: ${stderr.trim()}`, { details: { path } });
}

/** Later mounts cover earlier ones at the same place, so the last that fits is the one that is seen. */
function holdingMount(points: readonly MountPoint[], path: string): MountPoint | undefined {
  for (let at = path; ; at = dirname(at)) {
    const found = points.findLast((point) => point.path === at);
    if (found !== undefined || at === dirname(at)) return found;
  }
}

/** Each line: id, parent, device, root, mount point, options, then optional fields up to a dash. */
export function parseMountPoints(table: string): MountPoint[] {
  return table
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [, , , , path = '', , ...rest] = line.split(' ');
      const optional = rest.slice(0, rest.indexOf('-'));
      return {
        path: path.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
          String.fromCharCode(Number.parseInt(octal, 8)),
        ),
        isShared: optional.some((field) => field.startsWith('shared:')),
      };
    });
}
