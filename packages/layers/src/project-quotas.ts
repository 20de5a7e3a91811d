/**
 * Project quotas of XFS and ext4. The kernel counts the blocks and inodes of everything that carries the id of a project, also
 * of deleted files that are still open, and refuses what exceeds the limit of the project. `statfs` of a directory
 * whose entries inherit the id reports the limit as the size of the disk; overlayfs passes that on from its upper directory.
 *
 * A directory that is given to a project hands the id down to new entries. The kernel refuses a rename or a hard link into
 * such a directory from another project (EXDEV), so the upper and the work directory of a mount must have the same
 * project. Renames and links into directories without a project are allowed, and the files keep their id.
 *
 * Node has no `ioctl`, so programs set the ids (`chattr` of e2fsprogs, for both file systems) and the limits (`xfs_quota` of
 * xfsprogs, which with `-f` works on ext4 too).
 */
import { randomInt } from 'node:crypto';
import { mkdtemp, readFile, realpath, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, type Mount, ProgramFailure, parseMounts, programOutput, runProgram } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import type { Usage } from './layers.ts';

export interface ProjectQuotas {
  /** Gives the directories and everything in them to the project. New entries in them join the project. */
  assign(project: number, directories: readonly string[], signal?: AbortSignal): Promise<void>;
  /** Takes effect at once, also when the project already uses more. Null removes the limit. */
  limit(project: number, most: Usage | null, signal?: AbortSignal): Promise<void>;
  usage(project: number, signal?: AbortSignal): Promise<Usage>;
}

/** The quotas of the file system of a directory, or why there are none. */
export type FoundQuotas =
  | { readonly quotas: ProjectQuotas; readonly why: null }
  | { readonly quotas: null; readonly why: string };

const FILE_SYSTEMS = ['xfs', 'ext4'];
/** How the kernel lists quotas that are enforced. */
const ENFORCED = ['prjquota', 'pquota'];
const KIB = 1024;
const TRIAL = { bytes: 1024 * KIB, entries: 100 };
/** Ids below are left to people, who give small ones to their own projects. */
const LOWEST_ID = 2 ** 20;
const HIGHEST_ID = 2 ** 31;

/** Random: the caller makes sure that the id is not in use. */
export function randomProject(): number {
  return randomInt(LOWEST_ID, HIGHEST_ID);
}

/** Tries them with a directory of its own in `directory`, because the mount options do not say whether the programs are there. */
export async function findProjectQuotas(
  directory: string,
  mountinfo: () => Promise<string> = () => readFile('/proc/self/mountinfo', 'utf8'),
): Promise<FoundQuotas> {
  try {
    const mount = mountOf(await realpath(directory), parseMounts(await mountinfo()));
    if (mount === undefined || !FILE_SYSTEMS.includes(mount.type))
      return { quotas: null, why: `${mount?.type ?? 'this file system'} has no project quotas` };
    if (!ENFORCED.some((option) => mount.options.has(option)))
      return { quotas: null, why: `${mount.at} (${mount.type}) is not mounted with prjquota` };
    const quotas = new KernelQuotas(mount.at);
    return (await isEnforced(quotas, directory))
      ? { quotas, why: null }
      : { quotas: null, why: `the limit of a project is not shown on ${mount.at}` };
  } catch (thrown) {
    return { quotas: null, why: errnoOf(thrown) ?? TorporError.from(thrown).message };
  }
}

/** The mount that shows the directory: the last one at the longest path. */
function mountOf(directory: string, mounts: readonly Mount[]): Mount | undefined {
  const above = mounts.filter(({ at }) => at === '/' || directory === at || directory.startsWith(`${at}/`));
  return above.reduce<Mount | undefined>(
    (longest, mount) => (longest === undefined || mount.at.length >= longest.at.length ? mount : longest),
    undefined,
  );
}

async function isEnforced(quotas: ProjectQuotas, directory: string): Promise<boolean> {
  const trial = await mkdtemp(join(directory, '.quota-trial-'));
  const project = randomProject();
  try {
    await quotas.assign(project, [trial]);
    await quotas.limit(project, TRIAL);
    const { blocks, bsize } = await statfs(trial);
    await quotas.limit(project, null);
    return blocks * bsize === TRIAL.bytes;
  } finally {
    await rm(trial, { recursive: true, force: true });
  }
}

const HINT = 'Install e2fsprogs and xfsprogs: `sudo apt-get install -y e2fsprogs xfsprogs`.';

class KernelQuotas implements ProjectQuotas {
  readonly #mountPoint: string;

  constructor(mountPoint: string) {
    this.#mountPoint = mountPoint;
  }

  /** Links, devices and sockets cannot be given to a project later; they count from the start when their directory has one. */
  async assign(project: number, directories: readonly string[], signal?: AbortSignal): Promise<void> {
    const chattr = ['-exec', 'chattr', '-p', String(project)];
    const kinds = ['-type', 'd', ...chattr, '+P', '{}', '+', '-o', '-type', 'f', ...chattr, '{}', '+'];
    await programOutput('find', [...directories, '-xdev', ...kinds], { signal, missingHint: HINT });
  }

  async limit(project: number, most: Usage | null, signal?: AbortSignal): Promise<void> {
    const [kibibytes, entries] = most === null ? [0, 0] : [Math.ceil(most.bytes / KIB), most.entries];
    await this.#command(`limit -p bhard=${kibibytes}k ihard=${entries} ${project}`, signal);
  }

  async usage(project: number, signal?: AbortSignal): Promise<Usage> {
    return parseUsage(await this.#command(`quota -p -N -v -b -i -n ${project}`, signal));
  }

  /** `xfs_quota` ends with 0 also when it failed; only its stderr tells. */
  async #command(command: string, signal: AbortSignal | undefined): Promise<string> {
    const args = ['-f', '-x', '-c', command, this.#mountPoint];
    const { status, stdout, stderr } = await runProgram('xfs_quota', args, { signal, missingHint: HINT });
    if (status !== 0 || stderr !== '') throw new ProgramFailure('xfs_quota', args, status, stderr);
    return stdout;
  }
}

/**
 * A line is `device used soft hard warnings [grace] used soft hard warnings [grace] mount`, first for blocks of 1 KiB, then
 * for inodes. A project that uses nothing and has no limit has no line.
 */
export function parseUsage(report: string): Usage {
  const [blocks, inodes] = report.matchAll(/(\d+)\s+\d+\s+\d+\s+\d+\s+\[/g);
  return { bytes: Number(blocks?.[1] ?? 0) * KIB, entries: Number(inodes?.[1] ?? 0) };
}
