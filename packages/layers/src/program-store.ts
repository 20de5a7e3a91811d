/**
 * The interface of the checkpoint store for the programs that memory images need.
 *
 * A memory image can be restored only by the runsc that wrote it, with the guest tools that ran in it. The store keeps each
 * program in a directory of its own, named by a digest of its content, and never changes it. A program is kept while a
 * checkpoint claims it (`LayerClaim`) or its runtime uses it.
 */
import { createHash } from 'node:crypto';

/** `runsc` is the program itself, `tools` are the guest tools. The claim of a checkpoint has one field for each kind. */
export const PROGRAM_KINDS = ['runsc', 'tools'] as const;
export type ProgramKind = (typeof PROGRAM_KINDS)[number];

export interface ProgramId {
  readonly kind: ProgramKind;
  /** The sha256 of the file `runsc`, or `digestOfTools`. */
  readonly digest: string;
}

export interface ProgramStore {
  /** The directory of the program, whether the program is there or not. Its files must not be changed. */
  path(program: ProgramId): string;
  /** The digests of all complete programs of this kind, sorted. */
  list(kind: ProgramKind): Promise<string[]>;
  /**
   * Keeps a program: `write` fills an empty directory. The program survives a power loss when the promise resolves, and is
   * never seen incomplete. Does nothing when the program is there. Throws `conflict` when what was written has another digest.
   */
  add(program: ProgramId, write: (directory: string) => Promise<void>): Promise<void>;
  /** Reads the whole program. Throws `checkpoint_missing` or `checkpoint_corrupt`. */
  verify(program: ProgramId): Promise<void>;
  /**
   * Removes every program of this kind that no checkpoint claims and that is not in `inUse`, and the rest of unfinished
   * additions and removals. Keeps every complete program when a claim cannot be read. Returns the digests of the removed
   * programs. Called when a server starts, before anything else uses the programs.
   */
  sweep(kind: ProgramKind, inUse: ReadonlySet<string>): Promise<readonly string[]>;
}

/** The digest of guest tools: of the path and the sha256 of each file, whatever their order. */
export function digestOfTools(files: Iterable<readonly [path: string, sha256: string]>): string {
  const all = createHash('sha256');
  for (const [path, sha256] of [...files].sort(([a], [b]) => (a < b ? -1 : 1)))
    all.update(`${path}\0${sha256}\0`);
  return all.digest('hex');
}
