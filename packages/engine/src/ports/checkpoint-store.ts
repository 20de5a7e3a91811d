/**
 * The port to the store of checkpoints. A checkpoint is staged, sealed once, and never changed after that.
 *
 * `seal` is the promise behind the state `paused`: when it resolves, the checkpoint survives a loss of power. Every
 * question about a sealed checkpoint ends in the manifest or in one of three errors. `checkpoint_missing` and
 * `checkpoint_corrupt` are proofs; `checkpoint_unreadable` says only that the store could not answer. Each error carries
 * the checkpoint's id and `details`: `location`, and where one file is at fault `entry` (of the content) or `record` (of
 * the store's own files). `checkpoint_corrupt` also carries `damage`. A checkpoint that a newer version sealed is
 * `version_unsupported` instead.
 */
import type { CheckpointId, SandboxId } from '@torpor/protocol';

export interface ManifestEntry {
  /**
   * Relative to the content directory, parts separated by `/`. Bytes that are not UTF-8 are written as lone surrogates
   * (U+DC80 to U+DCFF), so that different names stay different.
   */
  readonly path: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'other';
  /** The size of a file, holes included; 0 for everything else. */
  readonly bytes: number;
  /** Where a symlink points, written as in `path`. The store never follows a symlink. */
  readonly target?: string;
  /** The digest of a file, in manifests that `verify` returns. */
  readonly sha256?: string;
}

export interface Manifest {
  readonly version: 1;
  readonly checkpointId: CheckpointId;
  readonly sandboxId: SandboxId | null;
  readonly parentId: CheckpointId | null;
  readonly runtime: string;
  /** Milliseconds. */
  readonly createdAt: number;
  readonly parts: { readonly files: boolean; readonly memory: boolean };
  /** What the runtime needs to start from the checkpoint, in the runtime's own format (build, CPU, layers…). JSON. */
  readonly needs: Readonly<Record<string, unknown>>;
  /** Everything in the content directory, sorted by path. */
  readonly entries: readonly ManifestEntry[];
}

/** How the content differs from what was sealed; `details.damage` of `checkpoint_corrupt`. */
export type Damage = 'record' | 'type' | 'size' | 'target' | 'unexpected' | 'digest';

export interface Staging {
  readonly checkpointId: CheckpointId;
  /** The content directory. What the runtime writes here is at `path(id)` after the seal. */
  readonly path: string;
}

export interface Sealed {
  readonly manifest: Manifest;
  /** The size of the content on disk: allocated blocks, with each file counted once however many hard links it has. */
  readonly bytes: number;
}

export interface Verified {
  /** With the digest of every selected file. */
  readonly manifest: Manifest;
  /** How many bytes were read. */
  readonly digested: number;
}

export interface StoredCheckpoint {
  readonly id: CheckpointId;
  readonly state: 'staged' | 'sealed' | 'removing';
}

/** Selects entries of the content by the first component of their paths. */
export interface ContentSelection {
  readonly how: 'only' | 'except';
  readonly names: readonly string[];
}

/** Without a selection every entry is selected. */
export function isSelected(path: string, selection: ContentSelection | undefined): boolean {
  if (selection === undefined) return true;
  const [first = ''] = path.split('/', 1);
  return selection.names.includes(first) === (selection.how === 'only');
}

export interface CheckpointStore {
  /**
   * Creates an empty private directory for the runtime to fill. An id that is staged already gets an empty directory
   * again; an id that is sealed is refused (`conflict`).
   */
  stage(id: CheckpointId, signal?: AbortSignal): Promise<Staging>;
  /**
   * Makes the staged content durable and seals it in one atomic step. Nothing may write into the content meanwhile. After
   * a failure nothing is sealed, and the same staging may be sealed again. Sealing a sealed checkpoint changes nothing
   * and returns its manifest.
   */
  seal(
    staging: Staging,
    manifest: Omit<Manifest, 'entries' | 'version'>,
    signal?: AbortSignal,
  ): Promise<Sealed>;
  /** Reads the manifest and checks that it is the one that was sealed. Does not read the content. */
  read(id: CheckpointId, signal?: AbortSignal): Promise<Manifest>;
  /**
   * The quick check: reads the manifest, and checks that the selected content has the entries of the manifest, with their
   * types and sizes, and no others. Damage to anything else goes unnoticed.
   */
  inspect(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Manifest>;
  /**
   * The slow check: `inspect`, then reads the selected content. The first run that reads an entry records its digest, and
   * each later run compares with it. So a change of content before the first run goes unnoticed.
   */
  verify(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Verified>;
  /** A location for people to read, in errors and events. */
  location(id: CheckpointId): string;
  /** The content directory of a sealed checkpoint, for the runtime to read from. */
  path(id: CheckpointId): string;
  /**
   * Removes a checkpoint, whether staged, sealed or absent. When the removal is interrupted, `list` still shows the
   * checkpoint, and it does not count as sealed.
   */
  remove(id: CheckpointId): Promise<void>;
  /**
   * Lists each checkpoint at least once. A checkpoint whose state changes meanwhile may appear twice, the newer state last.
   */
  list(): AsyncIterable<StoredCheckpoint>;
  usage(): Promise<{ readonly freeBytes: number; readonly totalBytes: number }>;
}
