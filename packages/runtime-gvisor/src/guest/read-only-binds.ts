/**
 * Read-only bind mounts of host directories. Guests get host directories only from these mounts.
 *
 * The `ro` of a mount in a guest's configuration is enforced by the guest's own kernel only, and root in a guest can undo
 * it: root may remount in a user namespace, and would then write to files of the host. A bind mount of a read-only mount
 * is read-only for the host's kernel too.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, realpathSync } from 'node:fs';
import { mkdir, readdir, rmdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { hostMountNamespace, isMissing, type MountNamespace, parseMounts, programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const TIMEOUT_MS = 10_000;

export class ReadOnlyBinds {
  readonly #directory: string;
  readonly #mounts: MountNamespace;

  /** `directory` is used for nothing else. */
  constructor(directory: string, mounts: MountNamespace = hostMountNamespace) {
    this.#directory = directory;
    this.#mounts = mounts;
  }

  /** Returns the read-only mount of `source`. May be repeated; a mount of an earlier server is reused. */
  async mount(source: string, signal: AbortSignal): Promise<string> {
    const mountPoint = join(this.#resolvedDirectory(), nameOf(source));
    if (stateOf(this.#mounts.mountinfo(), mountPoint) === 'read-only') return mountPoint;
    await this.#unmount(mountPoint, signal);
    await mkdir(mountPoint, { recursive: true, mode: 0o755 });
    await this.#program('mount', ['-o', 'bind,ro,nosuid,nodev', '--', source, mountPoint], signal);
    // Checked, because a writable mount would not be noticed otherwise.
    if (stateOf(this.#mounts.mountinfo(), mountPoint) === 'read-only') return mountPoint;
    await this.#unmount(mountPoint, signal);
    throw new TorporError('internal', `${source} cannot be mounted read-only.`, { details: { source } });
  }

  /** Running guests keep their mounts of the directory. An absent bind mount is fine. */
  async unmount(source: string, signal: AbortSignal): Promise<void> {
    await this.#remove(nameOf(source), signal);
  }

  async unmountAll(signal: AbortSignal): Promise<void> {
    const names = (await readdir(this.#directory).catch(ignoreMissing)) ?? [];
    for (const name of names) await this.#remove(name, signal);
  }

  async #remove(name: string, signal: AbortSignal): Promise<void> {
    const mountPoint = join(this.#resolvedDirectory(), name);
    await this.#unmount(mountPoint, signal);
    await rmdir(mountPoint).catch(ignoreMissing);
  }

  /** The directory as the table of mounts names it. Synchronous, like the reading of the table. */
  #resolvedDirectory(): string {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    return realpathSync.native(this.#directory);
  }

  async #unmount(mountPoint: string, signal: AbortSignal): Promise<void> {
    while (stateOf(this.#mounts.mountinfo(), mountPoint) !== 'none')
      await this.#program('umount', ['-l', '--', mountPoint], signal);
  }

  async #program(name: string, args: readonly string[], signal: AbortSignal): Promise<void> {
    const { launcher } = this.#mounts;
    await programOutput(name, args, { signal, timeoutMs: TIMEOUT_MS, launcher });
  }
}

/** One name for each source: short enough for every file system, and recognisable in the table of mounts. */
function nameOf(source: string): string {
  const digest = createHash('sha256').update(source).digest('hex').slice(0, 16);
  return `${basename(source).slice(0, 32)}-${digest}`;
}

type MountState = 'none' | 'read-only' | 'other';

/** Later mounts cover earlier ones. A mount whose source was deleted is empty, and counts as `other`. */
function stateOf(mountinfo: string, mountPoint: string): MountState {
  const mount = parseMounts(mountinfo).findLast(({ at }) => at === mountPoint);
  if (mount === undefined) return 'none';
  return mount.flags.has('ro') && !mount.root.endsWith('//deleted') ? 'read-only' : 'other';
}

function ignoreMissing(thrown: unknown): undefined {
  if (!isMissing(thrown)) throw thrown;
  return undefined;
}
