/**
 * The mount namespace in which the gVisor runtime mounts the roots of sandboxes and read-only views of the host's
 * system. The host's own namespace has none of these mounts, so a host program that walks through the data directory,
 * such as `rm -rf`, never reaches a file of the system or of a sandbox through a mount.
 *
 * The namespace is pinned as `ip netns` pins network namespaces: its file is bind-mounted below /run. So the namespace
 * outlives the server, and the next server finds the mounts of the sandboxes that still run. The namespace ends when the
 * server closes and no sandbox is left, or when the host reboots.
 *
 * The namespace is a slave: mounts of the host appear in it, because runsc joins network namespaces that are mounted
 * below /run/netns. Mounts in the namespace do not appear on the host.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { mkdir, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  hostMountNamespace,
  Launcher,
  type MountNamespace,
  mountsBelow,
  parseMounts,
  programOutput,
  runProgram,
} from '@torpor/host';
import { topmostAt } from '@torpor/layers';
import { TorporError } from '@torpor/protocol';
import { runDirectory } from '../container/run-directory.ts';
import { serverTag } from '../instance/instance-names.ts';
import { shareMounts } from './mount-sharing.ts';
import { makePinnedNamespace } from './pinned-namespace.ts';

const TIMEOUT_MS = 10_000;
const CHUNK = 65_536;

interface NamespacePaths {
  /** The runtime's directory below /run, as the kernel names it. */
  readonly runDir: string;
  /** The directory in which everything is mounted, as the kernel names it. */
  readonly mounted: string;
}

/** The file that pins the namespace, in a directory of its own that is a private mount. */
export function namespaceFile(runDir: string): string {
  return join(runDir, 'namespace', 'mnt');
}

/** Enters the namespace of an earlier server, or makes one. Shares its directory of mounts again if that was undone. */
export async function openMountNamespace(
  paths: NamespacePaths,
  signal: AbortSignal,
): Promise<PinnedMountNamespace> {
  const file = namespaceFile(paths.runDir);
  if (!isPinned(file)) await pin(file, signal);
  const namespace = await enterNamespace(file, signal);
  try {
    await takeOverHostMounts(namespace, paths, signal);
    await shareMounts(paths.mounted, signal, namespace);
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
): Promise<PinnedMountNamespace | undefined> {
  const file = namespaceFile(runDir);
  return isPinned(file) ? enterNamespace(file, signal) : undefined;
}

export class PinnedMountNamespace implements MountNamespace {
  readonly file: string;
  readonly enterCommand: readonly string[];
  readonly launcher: Launcher;
  readonly #root: number;
  readonly #table: number;

  /** `pid` is a process in the namespace. It may end once this returns: the open files keep the namespace. */
  constructor(file: string, entry: readonly string[], launcher: Launcher, pid: number) {
    this.file = file;
    this.enterCommand = entry;
    this.launcher = launcher;
    this.#root = openSync(`/proc/${pid}/root`, 'r');
    this.#table = openSync(`/proc/${pid}/mountinfo`, 'r');
  }

  mountinfo(): string {
    const chunks: Buffer[] = [];
    for (let at = 0; ; ) {
      const chunk = Buffer.allocUnsafe(CHUNK);
      const read = readSync(this.#table, chunk, 0, CHUNK, at);
      if (read === 0) return Buffer.concat(chunks).toString('utf8');
      chunks.push(chunk.subarray(0, read));
      at += read;
    }
  }

  hostPath(path: string): string {
    return `/proc/self/fd/${this.#root}${path}`;
  }

  /** Closes this process's handles. The namespace and its mounts stay for the next server. */
  leave(): void {
    this.launcher.close();
    for (const descriptor of [this.#root, this.#table]) closeSync(descriptor);
  }

  /** Ends the namespace with all its mounts. No process may run in it any more. */
  async remove(signal: AbortSignal): Promise<void> {
    this.leave();
    await unpin(this.file, signal);
  }
}

async function enterNamespace(file: string, signal: AbortSignal): Promise<PinnedMountNamespace> {
  const entry = ['nsenter', `--mount=${file}`, '--'];
  const launcher = new Launcher(entry);
  // The launcher is the parent of this shell, and has entered the namespace before it starts the shell.
  const { status, stdout, stderr } = await runProgram('sh', ['-c', 'echo $PPID'], {
    signal,
    timeoutMs: TIMEOUT_MS,
    launcher,
  }).catch((cause: unknown) => {
    throw unusable(file, '', cause);
  });
  if (status !== 0) throw unusable(file, stderr);
  try {
    return new PinnedMountNamespace(file, entry, launcher, Number(stdout));
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
      hint: `Try \`nsenter --mount=${file} true\`. When no sandbox runs, \`umount ${file}\` makes the next start create a new one.`,
      details: { file },
      cause,
    },
  );
}

function isPinned(file: string): boolean {
  return topmostAt(file, parseMounts(hostMountNamespace.mountinfo()))?.type === 'nsfs';
}

/** The directory must be a private mount: the kernel refuses a bind mount of a namespace that is visible in itself. */
async function pin(file: string, signal: AbortSignal): Promise<void> {
  const directory = join(file, '..');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  if (topmostAt(directory, parseMounts(hostMountNamespace.mountinfo())) === undefined)
    await program('mount', ['--bind', directory, directory], signal);
  await program('mount', ['--make-private', directory], signal);
  await writeFile(file, '', { mode: 0o600 });
  await makePinnedNamespace(file, signal);
}

/** Ends the namespace that an earlier server has left. No process may run in it. An absent namespace is fine. */
export function removeMountNamespace(runDir: string, signal: AbortSignal): Promise<void> {
  return unpin(namespaceFile(runDir), signal);
}

/** The file that pins the namespace of a data directory's sandboxes; undefined when there is none. */
export async function mountNamespaceOf(dataDir: string): Promise<string | undefined> {
  const realDataDir = await realpath(dataDir).catch(() => dataDir);
  const file = namespaceFile(runDirectory(serverTag(realDataDir)));
  return isPinned(file) ? file : undefined;
}

async function unpin(file: string, signal: AbortSignal): Promise<void> {
  const directory = join(file, '..');
  // Lazily, because a process may be entering the namespace. It ends with its last process.
  if (isPinned(file)) await program('umount', ['-l', file], signal);
  while (topmostAt(directory, parseMounts(hostMountNamespace.mountinfo())) !== undefined)
    await program('umount', ['-l', directory], signal);
  await rm(directory, { recursive: true, force: true });
}

/** The script is constant; paths are passed as arguments. */
const MOVE_MOUNTS = `set -e
top=$1 aside=$2; shift 2
mount --rbind "$top" "$aside"
mount --make-rprivate "$aside"
for at do umount -l "$at"; done
mount --move "$aside" "$top"`;

/**
 * Servers of earlier versions mounted everything in the host's namespace, and running sandboxes may use these mounts. A
 * new namespace begins with copies of them. The copies are made independent before the host's mounts are unmounted.
 */
async function takeOverHostMounts(
  namespace: PinnedMountNamespace,
  { runDir, mounted }: NamespacePaths,
  signal: AbortSignal,
): Promise<void> {
  const onHost = mountsOnHost(mounted);
  if (onHost.length === 0) return;
  const copies = mountsBelow(namespace.mountinfo(), mounted).map(({ at }) => at);
  if (copies.length > 0 && copies.length >= onHost.length) {
    const aside = await realpath(await makeDirectory(join(runDir, 'aside')));
    await program('sh', ['-c', MOVE_MOUNTS, 'sh', mounted, aside, ...copies.toReversed()], signal, namespace);
  }
  await unmountOnHost(mounted, signal);
}

/** Unmounts everything at this path and below it in the host's namespace. */
export async function unmountOnHost(path: string, signal: AbortSignal): Promise<void> {
  for (const at of mountsOnHost(path).toReversed()) await program('umount', ['-l', at], signal);
}

/** The mount points at this path and below it in the host's namespace, topmost last. */
export function mountsOnHost(path: string): string[] {
  return mountsBelow(hostMountNamespace.mountinfo(), path).map(({ at }) => at);
}

async function makeDirectory(directory: string): Promise<string> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  return directory;
}

async function program(
  name: string,
  args: readonly string[],
  signal: AbortSignal,
  { launcher }: Pick<MountNamespace, 'launcher'> = hostMountNamespace,
): Promise<void> {
  await programOutput(name, args, { signal, timeoutMs: TIMEOUT_MS, launcher });
}
