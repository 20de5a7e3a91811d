/**
 * The mount namespace in which the gVisor runtime mounts the roots of its sandboxes and its read-only views of this
 * machine's system. The host's own namespace has none of these mounts, so a program of the host that walks through the
 * data directory, such as `rm -rf`, never meets a file of the system or of a sandbox through a mount.
 *
 * The namespace is pinned as `ip netns` pins network namespaces: its file is bind-mounted below /run. So it outlives
 * the server, and the next server finds the mounts of the sandboxes that still run. It goes when the server closes and
 * no sandbox is left, or when the machine restarts.
 *
 * Mounts of the host appear in it (it is a slave), because runsc joins network namespaces that are mounted below
 * /run/netns. Nothing that is mounted in it appears on the host.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { mkdir, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  hostMountPlace,
  Launcher,
  type MountPlace,
  mountsBelow,
  parseMounts,
  runCommand,
} from '@torpor/host';
import { topmostAt } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';
import { runDirectory } from '../container/run-directory.ts';
import { serverTag } from '../instance/instance-names.ts';
import { shareMounts } from './mount-sharing.ts';

const BOUND_MS = 10_000;
const CHUNK = 65_536;

interface NamespacePlaces {
  /** The runtime's directory below /run, as the kernel names it. */
  readonly runDir: string;
  /** The directory in which everything is mounted, as the kernel names it. */
  readonly mounted: string;
}

/** The file that pins the namespace, in a directory of its own that is a private mount. */
export function namespaceFile(runDir: string): string {
  return join(runDir, 'namespace', 'mnt');
}

/** Finds the namespace of an earlier server, or makes one. Repairs what was unmounted in it meanwhile. */
export async function openMountNamespace(
  places: NamespacePlaces,
  signal: AbortSignal,
): Promise<MountNamespace> {
  const file = namespaceFile(places.runDir);
  if (!isPinned(file)) await pin(file, signal);
  const namespace = await enterNamespace(file, signal);
  try {
    await takeOverHostMounts(namespace, places, signal);
    await shareMounts(places.mounted, signal, namespace);
    return namespace;
  } catch (thrown) {
    namespace.leave();
    throw thrown;
  }
}

/** The namespace that an earlier server has left, or undefined. */
export async function findMountNamespace(
  runDir: string,
  signal: AbortSignal,
): Promise<MountNamespace | undefined> {
  const file = namespaceFile(runDir);
  return isPinned(file) ? enterNamespace(file, signal) : undefined;
}

export class MountNamespace implements MountPlace {
  readonly file: string;
  readonly entry: readonly string[];
  readonly launcher: Launcher;
  readonly #root: number;
  readonly #table: number;

  /** `pid` is a process in the namespace. It may end once this returns: the open files keep the namespace. */
  constructor(file: string, entry: readonly string[], launcher: Launcher, pid: number) {
    this.file = file;
    this.entry = entry;
    this.launcher = launcher;
    this.#root = openSync(`/proc/${pid}/root`, 'r');
    this.#table = openSync(`/proc/${pid}/mountinfo`, 'r');
  }

  table(): string {
    const chunks: Buffer[] = [];
    for (let at = 0; ; ) {
      const chunk = Buffer.allocUnsafe(CHUNK);
      const read = readSync(this.#table, chunk, 0, CHUNK, at);
      if (read === 0) return Buffer.concat(chunks).toString('utf8');
      chunks.push(chunk.subarray(0, read));
      at += read;
    }
  }

  reach(path: string): string {
    return `/proc/self/fd/${this.#root}${path}`;
  }

  /** The namespace and its mounts stay for the next server. */
  leave(): void {
    this.launcher.close();
    for (const descriptor of [this.#root, this.#table]) closeSync(descriptor);
  }

  /** Ends the namespace with everything that is mounted in it. Nothing may run in it any more. */
  async end(signal: AbortSignal): Promise<void> {
    this.leave();
    await unpin(this.file, signal);
  }
}

async function enterNamespace(file: string, signal: AbortSignal): Promise<MountNamespace> {
  const entry = ['nsenter', `--mount=${file}`, '--'];
  const launcher = new Launcher(entry);
  // The launcher is the parent of what it starts, and in the namespace by the time it starts anything.
  const { status, stdout, stderr } = await runCommand('sh', ['-c', 'echo $PPID'], {
    signal,
    boundMs: BOUND_MS,
    launcher,
  }).catch((cause: unknown) => {
    throw unusable(file, '', cause);
  });
  if (status !== 0) throw unusable(file, stderr);
  try {
    return new MountNamespace(file, entry, launcher, Number(stdout));
  } catch (cause) {
    launcher.close();
    throw unusable(file, '', cause);
  }
}

function unusable(file: string, said: string, cause?: unknown): TorporError {
  return new TorporError(
    'internal',
    `The mount namespace of the sandboxes cannot be entered. ${said.trim()}`,
    {
      hint: `Look with \`nsenter --mount=${file} true\`. Without running sandboxes, \`umount ${file}\` has it made anew.`,
      details: { file },
      cause,
    },
  );
}

function isPinned(file: string): boolean {
  return topmostAt(file, parseMounts(hostMountPlace.table()))?.type === 'nsfs';
}

/** The directory is a private mount: the kernel refuses to show a namespace to itself, as a shared mount would. */
async function pin(file: string, signal: AbortSignal): Promise<void> {
  const directory = join(file, '..');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  if (topmostAt(directory, parseMounts(hostMountPlace.table())) === undefined)
    await program('mount', ['--bind', directory, directory], signal);
  await program('mount', ['--make-private', directory], signal);
  await writeFile(file, '', { mode: 0o600 });
  await program('unshare', [`--mount=${file}`, '--propagation', 'slave', 'true'], signal);
}

/** Ends the namespace that an earlier server has left. Nothing may run in it; absent is fine. */
export function removeMountNamespace(runDir: string, signal: AbortSignal): Promise<void> {
  return unpin(namespaceFile(runDir), signal);
}

/** The file that pins the namespace of a data directory's sandboxes; undefined when there is none. */
export async function mountNamespaceOf(dataDir: string): Promise<string | undefined> {
  const place = await realpath(dataDir).catch(() => dataDir);
  const file = namespaceFile(runDirectory(serverTag(place)));
  return isPinned(file) ? file : undefined;
}

async function unpin(file: string, signal: AbortSignal): Promise<void> {
  const directory = join(file, '..');
  // Lazily: somebody may be about to enter it. The namespace ends with its last process.
  if (isPinned(file)) await program('umount', ['-l', file], signal);
  while (topmostAt(directory, parseMounts(hostMountPlace.table())) !== undefined)
    await program('umount', ['-l', directory], signal);
  await rm(directory, { recursive: true, force: true });
}

/** What is said to the shell is fixed; paths come as its arguments. */
const MOVE_MOUNTS = `set -e
top=$1 aside=$2; shift 2
mount --rbind "$top" "$aside"
mount --make-rprivate "$aside"
for at do umount -l "$at"; done
mount --move "$aside" "$top"`;

/**
 * Servers of earlier versions mounted everything in the host's namespace. Running sandboxes may stand on these mounts.
 * A new namespace begins with copies of them, which are made independent of the host before the host's are unmounted.
 */
async function takeOverHostMounts(
  namespace: MountNamespace,
  { runDir, mounted }: NamespacePlaces,
  signal: AbortSignal,
): Promise<void> {
  const onHost = mountsOnHost(mounted);
  if (onHost.length === 0) return;
  const copies = mountsBelow(namespace.table(), mounted).map(({ at }) => at);
  if (copies.length > 0 && copies.length >= onHost.length) {
    const aside = await realpath(await made(join(runDir, 'aside')));
    await program('sh', ['-c', MOVE_MOUNTS, 'sh', mounted, aside, ...copies.toReversed()], signal, namespace);
  }
  await unmountOnHost(mounted, signal);
}

/** Unmounts everything at this path and below it in the host's namespace. */
export async function unmountOnHost(path: string, signal: AbortSignal): Promise<void> {
  for (const at of mountsOnHost(path).toReversed()) await program('umount', ['-l', at], signal);
}

/** The places at this path and below it where something is mounted in the host's namespace, topmost last. */
export function mountsOnHost(path: string): string[] {
  return mountsBelow(hostMountPlace.table(), path).map(({ at }) => at);
}

async function made(directory: string): Promise<string> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  return directory;
}

async function program(
  name: string,
  args: readonly string[],
  signal: AbortSignal,
  { launcher }: Pick<MountPlace, 'launcher'> = hostMountPlace,
): Promise<void> {
  const { status, stderr } = await runCommand(name, args, { signal, boundMs: BOUND_MS, launcher });
  if (status === 0) return;
  throw new TorporError('internal', `${name} failed: ${stderr.trim()}`, { details: { args } });
}
