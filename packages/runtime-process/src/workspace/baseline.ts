/**
 * The baseline of a workspace: the files that are unchanged since a sealed checkpoint, so that the next checkpoint can share
 * them. Each file is recorded with its stat values at the time when it was equal to its sealed copy.
 *
 * A change of content, mode or name changes a file's ctime, which only the kernel can set.
 */
import type { BigIntStats } from 'node:fs';
import { readFile, rename, rm, statfs, writeFile } from 'node:fs/promises';
import { type CheckpointId, idSchema } from '@torpor/protocol';
import { z } from 'zod';
import type { TreePath } from './tree-walk.ts';

export interface Baseline {
  readonly checkpointId: CheckpointId;
  /** The path of the workspace in the sealed checkpoint. Null until the checkpoint is known to be sealed. */
  readonly workspace: string | null;
  readonly files: ReadonlyMap<TreePath, UnchangedFileRecord>;
}

/** Fingerprints of a live file and of its sealed copy at the time when they were equal. */
export interface UnchangedFileRecord {
  readonly live: string;
  readonly sealed: string;
}

const baselineSchema = z.object({
  checkpointId: idSchema('ckpt'),
  workspace: z.string().nullable(),
  files: z.array(z.tuple([z.string(), z.string(), z.string()])),
});

export function liveFingerprint({ ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
}

/** Without the ctime, which changes whenever another checkpoint links the file. */
export function sealedFingerprint({ dev, ino, size, mtimeNs }: BigIntStats): string {
  return `${dev} ${ino} ${size} ${mtimeNs}`;
}

/** Magic numbers of ext2 to ext4, XFS, Btrfs and F2FS. */
const DETECTING = new Set([0xef53, 0x58465342, 0x9123683e, 0xf2f52010]);

/**
 * Whether the file system is known to change a file's times when the file is written through a memory mapping. Some file
 * systems, such as tmpfs, never do. On those, no file can be assumed to be unchanged.
 */
export async function detectsMappedWrites(path: string): Promise<boolean> {
  return DETECTING.has((await statfs(path)).type);
}

/** Never fails: a sandbox must not stay frozen because a full disk has no room for an optimisation. */
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

/** Undefined when missing or damaged. Without a baseline every file counts as changed, which only costs space. */
export async function readBaseline(path: string): Promise<Baseline | undefined> {
  try {
    const { checkpointId, workspace, files } = baselineSchema.parse(JSON.parse(await readFile(path, 'utf8')));
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
