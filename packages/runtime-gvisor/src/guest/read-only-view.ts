/**
 * Directories of this machine in a second place, where they can be read and never written, not even by root.
 * Only from there are they shown to guests.
 *
 * The `ro` of a mount in a guest's configuration is kept by the guest's own kernel alone, and root in a guest
 * can undo it: in a user namespace of its own it may remount what it likes, and would then write into this
 * machine's files. What is bound from a read-only mount is read-only to this machine's kernel.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, realpathSync } from 'node:fs';
import { mkdir, readdir, rmdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { hostMountNamespace, isMissing, type MountNamespace, parseMounts, programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const BOUND_MS = 10_000;

export class ReadOnlyView {
  private readonly directory: string;
  private readonly mounts: MountNamespace;

  /** `directory` is for nothing else. */
  constructor(directory: string, mounts: MountNamespace = hostMountNamespace) {
    this.directory = directory;
    this.mounts = mounts;
  }

  /** Where to find `source`. May be asked again and again; what was mounted by an earlier server is used. */
  async show(source: string, signal: AbortSignal): Promise<string> {
    const place = join(this.place(), nameOf(source));
    if (stateOf(this.mounts.mountinfo(), place) === 'read-only') return place;
    await this.unmount(place, signal);
    await mkdir(place, { recursive: true, mode: 0o755 });
    await this.program('mount', ['-o', 'bind,ro,nosuid,nodev', '--', source, place], signal);
    // A mount that could be written would show nobody that it can.
    if (stateOf(this.mounts.mountinfo(), place) === 'read-only') return place;
    await this.unmount(place, signal);
    throw new TorporError('internal', `${source} cannot be mounted read-only.`, { details: { source } });
  }

  /** Guests that have it already keep it. Absent is fine. */
  async hide(source: string, signal: AbortSignal): Promise<void> {
    await this.remove(nameOf(source), signal);
  }

  async hideAll(signal: AbortSignal): Promise<void> {
    const names = (await readdir(this.directory).catch(ignoreMissing)) ?? [];
    for (const name of names) await this.remove(name, signal);
  }

  private async remove(name: string, signal: AbortSignal): Promise<void> {
    const place = join(this.place(), name);
    await this.unmount(place, signal);
    await rmdir(place).catch(ignoreMissing);
  }

  /** As the table of mounts names it. In place, as the table is read. */
  private place(): string {
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    return realpathSync.native(this.directory);
  }

  private async unmount(place: string, signal: AbortSignal): Promise<void> {
    while (stateOf(this.mounts.mountinfo(), place) !== 'none')
      await this.program('umount', ['-l', '--', place], signal);
  }

  private async program(name: string, args: readonly string[], signal: AbortSignal): Promise<void> {
    const { launcher } = this.mounts;
    await programOutput(name, args, { signal, timeoutMs: BOUND_MS, launcher });
  }
}

/** One name for each source, short enough for every file system, and not unknown to who looks at the table. */
function nameOf(source: string): string {
  const digest = createHash('sha256').update(source).digest('hex').slice(0, 16);
  return `${basename(source).slice(0, 32)}-${digest}`;
}

type MountState = 'none' | 'read-only' | 'other';

/** Later mounts cover earlier ones. One whose source was deleted shows nothing any more. */
function stateOf(mountinfo: string, place: string): MountState {
  const mount = parseMounts(mountinfo).findLast(({ at }) => at === place);
  if (mount === undefined) return 'none';
  return mount.flags.has('ro') && !mount.root.endsWith('//deleted') ? 'read-only' : 'other';
}

function ignoreMissing(thrown: unknown): undefined {
  if (!isMissing(thrown)) throw thrown;
  return undefined;
}
