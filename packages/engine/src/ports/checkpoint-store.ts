/**
 * The port to the checkpoint store, the one place where checkpoints are kept: staged, sealed once, never changed after that.
 *
 * A checkpoint has parts: a memory image, secrets, a workspace, layers. All parts but the layers lie in the content
 * directory of the checkpoint. A layer may be part of many checkpoints; the store keeps it for as long as one of them has it.
 *
 * The state `paused` relies on `seal`: when it resolves, the checkpoint survives a loss of power. `read`, `inspect` and
 * `verify` return the manifest or throw one of three errors:
 * - `checkpoint_missing`: a proof that the checkpoint is not there
 * - `checkpoint_corrupt`: a proof that the checkpoint is damaged
 * - `checkpoint_unreadable`: no proof; the store could not be read
 *
 * Each error carries the checkpoint's id and `details`: `location`, and where a single thing is at fault `entry` (of
 * the content), `layerId` or `record` (of the store's own files). A corrupt checkpoint also has `damage` there. A checkpoint
 * that a newer version of Torpor sealed gives `version_unsupported` instead.
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

/** A sealed layer in the stack of a checkpoint. */
export interface LayerReference {
  readonly id: `lay_${string}`;
  /** Of the layer's seal: a layer that was reopened and sealed again has another one. */
  readonly nonce: string;
  /** The checkpoint that brought the layer, and that verifies it. */
  readonly owner: CheckpointId;
}

/** `packed` parts have to be unpacked before they can be used; `whole` parts are used as they lie there. */
export type PartEncoding = 'whole' | 'packed';

/** One part of a checkpoint's content. */
export interface ContentPart {
  readonly name: 'memory' | 'secrets' | 'workspace' | 'layers';
  readonly encoding: PartEncoding;
  /** The names at the top of the content directory that belong to this part. */
  readonly top: readonly string[];
  /** Of the part `layers`: newest first. Empty for every other part. */
  readonly layers: readonly LayerReference[];
}

export interface Manifest {
  /** 1 for checkpoints that were sealed before manifests listed their parts. */
  readonly version: 1 | 2;
  readonly checkpointId: CheckpointId;
  readonly sandboxId: SandboxId | null;
  readonly parentId: CheckpointId | null;
  readonly runtime: string;
  /** Milliseconds. */
  readonly createdAt: number;
  readonly parts: { readonly files: boolean; readonly memory: boolean };
  /** What the runtime needs to start from the checkpoint, in the runtime's own format (build, CPU, layers…). JSON. */
  readonly needs: Readonly<Record<string, unknown>>;
  readonly contents: readonly ContentPart[];
  /** Everything in the content directory, sorted by path. */
  readonly entries: readonly ManifestEntry[];
}

/** What the engine knows of a checkpoint when it seals it. */
export type ManifestDraft = Omit<Manifest, 'entries' | 'version' | 'contents'> & {
  /** The parts that the runtime names. All other content is the part `workspace`. */
  readonly contents?: readonly ContentPart[];
};

/** How the content differs from what was sealed; `details.damage` of `checkpoint_corrupt`. */
export type Damage = 'record' | 'type' | 'size' | 'target' | 'unexpected' | 'digest';

export interface Staging {
  readonly checkpointId: CheckpointId;
  /** The content directory. What the runtime writes here is at `path(id)` after the seal. */
  readonly path: string;
}

export interface StoredSeal {
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

/**
 * Selects entries of the content by the first component of their paths. `except` includes the layers, because layers are
 * files; `only` leaves them out.
 */
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

/** Layers count as files: an inspection of the memory only leaves them out. */
export function selectsLayers(selection: ContentSelection | undefined): boolean {
  return selection?.how !== 'only';
}

/**
 * The parts of a checkpoint whose content directory has these names at its top: those that its runtime named and that are
 * there, and a `workspace` of everything else.
 */
export function partsOfContent(
  named: readonly ContentPart[],
  top: readonly string[],
): readonly ContentPart[] {
  const theirs = new Set(named.flatMap((part) => part.top));
  const rest = top.filter((name) => !theirs.has(name));
  const workspace: ContentPart = { name: 'workspace', encoding: 'whole', top: rest, layers: [] };
  return rest.length === 0 ? named : [...named, workspace];
}

export interface CheckpointStore {
  /**
   * Makes an empty private directory for the runtime to fill. The directory of an id that is staged already is emptied. An
   * id that is sealed is refused (`conflict`).
   */
  stage(id: CheckpointId, signal?: AbortSignal): Promise<Staging>;
  /**
   * Makes the staged content durable and seals it in one atomic step. The caller makes sure that nothing writes into it
   * while this runs, and that the layers are sealed. After a failure nothing is sealed, and the same staging may be sealed
   * again. Sealing a sealed checkpoint changes nothing and returns the manifest that is there.
   */
  seal(staging: Staging, manifest: ManifestDraft, signal?: AbortSignal): Promise<StoredSeal>;
  /** Returns the manifest after checking its checksum and id. Does not read the content. */
  read(id: CheckpointId, signal?: AbortSignal): Promise<Manifest>;
  /**
   * Quick: checks the manifest, that the selected content has its entries in type and size and no others, and the seals of
   * its layers. Damage to anything that is not selected is not seen.
   */
  inspect(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Manifest>;
  /**
   * Slow: `inspect`, then reads the selected content and the layers that this checkpoint owns. The first run that reads an
   * entry records its digest; each later run compares with it. So a change of content before the first run is not seen.
   */
  verify(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Verified>;
  /**
   * Writes the manifest of a sealed checkpoint again when it is damaged or gone, from the records of the parts. All
   * part records must be present with valid checksums; otherwise throws the error of `read`. A valid manifest is left as it
   * is.
   */
  rebuild(id: CheckpointId, signal?: AbortSignal): Promise<Manifest>;
  /** For people, in errors and events. */
  location(id: CheckpointId): string;
  /** The content directory of a sealed checkpoint, for the runtime to read from. */
  path(id: CheckpointId): string;
  /**
   * Removes a checkpoint that is staged, sealed or absent, with the layers that nothing else needs. After a crash in the
   * middle `list` still shows the checkpoint, and no part of it passes for sealed. While a backup holds the store a sealed
   * checkpoint is not removed (`transitioning`).
   */
  remove(id: CheckpointId): Promise<void>;
  /**
   * Lists each checkpoint at least once. A checkpoint that changes its state meanwhile may be shown twice, the newer state
   * last.
   */
  list(): AsyncIterable<StoredCheckpoint>;
  usage(): Promise<{ readonly freeBytes: number; readonly totalBytes: number }>;
}
