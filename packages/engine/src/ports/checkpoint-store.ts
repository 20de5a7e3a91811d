/**
 * Where checkpoints are kept, as the engine sees it: staged, sealed once, never changed after that.
 *
 * `seal` is the promise behind the state `paused`: when it resolves, the checkpoint survives a loss of
 * power. Everything that is asked about a sealed checkpoint ends in the manifest or in one of three
 * errors, which lead to different ends: `checkpoint_missing` and `checkpoint_corrupt` are proofs,
 * `checkpoint_unreadable` says only that the store could not be asked. Each carries the checkpoint's id
 * and `details`: `location`, and where one thing is at fault `entry` (of the content) or `record` (of the
 * store's own files); a corrupt one also says its `damage`. (One that a
 * newer version sealed is none of the three, but `version_unsupported`.)
 */
import type { CheckpointId, SandboxId } from '@torpor/protocol';

export interface ManifestEntry {
  /**
   * Relative to the content directory, parts separated by `/`. Bytes that are not UTF-8 stand in it as
   * lone surrogates (U+DC80 to U+DCFF), so that every name can be told from every other.
   */
  readonly path: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'other';
  /** The size of a file, holes included; 0 for everything else. */
  readonly bytes: number;
  /** Where a symlink points, written as in `path`. It is never followed. */
  readonly target?: string;
  /** Of a file, in manifests that come from `verify`. */
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
  /** What the runtime needs to start it again, in the runtime's own words (build, CPU, layers…). JSON. */
  readonly needs: Readonly<Record<string, unknown>>;
  /** Everything in the content directory, sorted by path. */
  readonly entries: readonly ManifestEntry[];
}

/** How a sealed checkpoint differs from what was sealed; `details.damage` of `checkpoint_corrupt`. */
export type Damage = 'record' | 'type' | 'size' | 'target' | 'unexpected' | 'digest';

export interface Staging {
  readonly checkpointId: CheckpointId;
  /** The content directory: what the runtime writes here is what it finds at `path(id)` later. */
  readonly path: string;
}

export interface Sealed {
  readonly manifest: Manifest;
  /** What the content takes on disk: allocated blocks, a file with several hard links counted once. */
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

/** Which entries of the content a look is about, by the first component of their paths. */
export interface ContentSelection {
  readonly how: 'only' | 'except';
  readonly names: readonly string[];
}

/** Without a selection every entry is meant. */
export function isSelected(path: string, selection: ContentSelection | undefined): boolean {
  if (selection === undefined) return true;
  const [first = ''] = path.split('/', 1);
  return selection.names.includes(first) === (selection.how === 'only');
}

export interface CheckpointStore {
  /**
   * An empty private directory for the runtime to fill. For an id that is staged already it starts
   * empty again; an id that is sealed is refused (`conflict`).
   */
  stage(id: CheckpointId, signal?: AbortSignal): Promise<Staging>;
  /**
   * Makes the staged content durable and seals it in one atomic step. Nobody may write into it while this
   * runs. When it fails, nothing is sealed and the same staging may be sealed again. Sealing what is
   * sealed already changes nothing and returns the manifest that is there.
   */
  seal(
    staging: Staging,
    manifest: Omit<Manifest, 'entries' | 'version'>,
    signal?: AbortSignal,
  ): Promise<Sealed>;
  /** The manifest, believed only when it is the one that was sealed. The content is not looked at. */
  read(id: CheckpointId, signal?: AbortSignal): Promise<Manifest>;
  /**
   * Quick: the manifest, and that the selected content has its entries in type and size, and no others. Damage to
   * anything that is not selected is not seen.
   */
  inspect(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Manifest>;
  /**
   * Slow: `inspect`, then reads the selected content. The first run that reads an entry records its digest; each
   * later one compares with it. So a change of content before the first run is not seen.
   */
  verify(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Verified>;
  /** For people, in errors and events. */
  location(id: CheckpointId): string;
  /** The content directory of a sealed checkpoint, for the runtime to read from. */
  path(id: CheckpointId): string;
  /**
   * Staged, sealed or absent: gone afterwards. When it is cut short, `list` still shows what is left, and
   * nothing of it passes for sealed.
   */
  remove(id: CheckpointId): Promise<void>;
  /**
   * Each checkpoint at least once. One that moves on meanwhile may be shown twice, the newer state last.
   */
  list(): AsyncIterable<StoredCheckpoint>;
  usage(): Promise<{ readonly freeBytes: number; readonly totalBytes: number }>;
}
