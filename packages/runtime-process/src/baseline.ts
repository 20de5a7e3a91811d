/**
 * Which files of a workspace are still those of a sealed checkpoint, so that the next checkpoint can share
 * them: each with what the system says of it when it was last equal to its sealed copy.
 *
 * A change of content, mode or name changes a file's ctime, and nobody but the system can set that.
 */
import type { BigIntStats } from 'node:fs';
import { readFile, rename, rm, statfs, writeFile } from 'node:fs/promises';
import type { CheckpointId } from '@torpor/protocol';
import type { TreePath } from './tree-walk.ts';

export interface Baseline {
  readonly checkpointId: CheckpointId;
  /** The workspace in the sealed checkpoint; null when only its id is known so far. */
  readonly workspace: string | null;
  readonly files: ReadonlyMap<TreePath, Likeness>;
}

/** A live file and its sealed copy, when they were the same. */
export interface Likeness {
  readonly live: string;
  readonly sealed: string;
}

export function liveMark({ ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
}

/** Without the ctime, which changes each time another checkpoint shares the file. */
export function sealedMark({ dev, ino, size, mtimeNs }: BigIntStats): string {
  return `${dev} ${ino} ${size} ${mtimeNs}`;
}

/** By their magic numbers: ext2 to ext4, XFS, Btrfs, F2FS. */
const NOTICING = new Set([0xef53, 0x58465342, 0x9123683e, 0xf2f52010]);

/**
 * Whether the file system here is known to change a file's times when it is written through a mapping.
 * Some, tmpfs for one, never do: there no file may be taken for unchanged.
 */
export async function noticesWrites(path: string): Promise<boolean> {
  return NOTICING.has((await statfs(path)).type);
}

/** Never fails: a sandbox must not stay frozen because there was no room for something it can do without. */
export async function writeBaseline(
  path: string,
  { checkpointId, workspace, files }: Baseline,
): Promise<void> {
  const rows = Array.from(files, ([file, { live, sealed }]) => [file, live, sealed]);
  try {
    await writeFile(`${path}.new`, JSON.stringify({ checkpointId, workspace, files: rows }), { mode: 0o600 });
    await rename(`${path}.new`, path);
  } catch {
    await rm(`${path}.new`, { force: true }).catch(() => {});
  }
}

/** Without a baseline every file counts as changed, which costs space and loses nothing. */
export async function readBaseline(path: string): Promise<Baseline | undefined> {
  try {
    const { checkpointId, workspace, files } = JSON.parse(await readFile(path, 'utf8')) as {
      readonly checkpointId: CheckpointId;
      readonly workspace: string | null;
      readonly files: readonly (readonly [TreePath, string, string])[];
    };
    return {
      checkpointId,
      workspace,
      files: new Map(files.map(([file, live, sealed]) => [file, { live, sealed }])),
    };
  } catch {
    return undefined;
  }
}

export async function dropBaseline(path: string): Promise<void> {
  await rm(path, { force: true }).catch(() => {});
}
