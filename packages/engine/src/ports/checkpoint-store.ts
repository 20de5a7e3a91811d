/**
 * The port to the checkpoint store, the one place where checkpoints are kept: staged, sealed once, never changed after that.
 *
 * A checkpoint has parts: a memory image, secrets, a workspace, layers. All parts but the layers lie in the content
 * directory of the checkpoint, and a memory image may have page layers too. A layer may be part of many checkpoints. The store
 * keeps it while a checkpoint claims it or a sandbox uses it.
 *
 * The state `paused` relies on `seal`: when its promise resolves, the checkpoint survives a power loss.
 *
 * `read`, `inspect` and `verify` return the manifest or throw one of these errors:
 * - `checkpoint_missing` and `checkpoint_corrupt` prove that the checkpoint is damaged;
 * - `checkpoint_unreadable` proves nothing: the store could not be read this time;
 * - `version_unsupported`: a newer version of Torpor sealed the checkpoint.
 *
 * Each error has the checkpoint's id and `details`: `location`, and if a single thing is at fault `entry` (of the content),
 * `layerId` or `record` (one of the store's own files). `checkpoint_corrupt` also has `damage`.
 */
import type { GiveWay } from '@torpor/host';
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
  /** The nonce of the layer's seal. A layer that was reopened and sealed again has another nonce. */
  readonly nonce: string;
  /** The checkpoint that added the layer. Verifying this checkpoint verifies the layer. */
  readonly owner: CheckpointId;
}

/** `packed` parts have to be unpacked before they can be used; `whole` parts are used in place. */
export type PartEncoding = 'whole' | 'packed';

/** One part of a checkpoint's content. */
export interface ContentPart {
  readonly name: 'memory' | 'secrets' | 'workspace' | 'layers';
  readonly encoding: PartEncoding;
  /** The names at the top of the content directory that belong to this part. */
  readonly top: readonly string[];
  /** Of the part `layers`: newest first. Of the part `memory`: its page layers, the checkpoint's own first. */
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

/** The fields of a manifest that the engine passes to `seal`. The store adds the rest. */
export type ManifestDraft = Omit<Manifest, 'entries' | 'version' | 'contents'> & {
  /** The parts that the runtime names. All other content is the part `workspace`. */
  readonly contents?: readonly ContentPart[];
};

/**
 * What a failed read of a checkpoint proves, by its errno. Every other errno proves nothing: the checkpoint is
 * `checkpoint_unreadable` then.
 */
export const DAMAGE_BY_ERRNO: Readonly<Record<string, 'checkpoint_missing' | 'checkpoint_corrupt'>> = {
  ENOENT: 'checkpoint_missing',
  ENOTDIR: 'checkpoint_corrupt',
  EISDIR: 'checkpoint_corrupt',
  ELOOP: 'checkpoint_corrupt',
};

/** How the content differs from the sealed content: `details.damage` of `checkpoint_corrupt`. */
export type Damage = 'record' | 'type' | 'size' | 'target' | 'unexpected' | 'digest';

export interface Staging {
  readonly checkpointId: CheckpointId;
  /** The content directory. What the runtime writes here is at `path(id)` after the seal. */
  readonly path: string;
  /** Set by the engine; `shared pages` by default. */
  readonly memoryForm?: MemoryForm;
}

/**
 * How a runtime that keeps pages of memory in layers seals memory. `shared pages`: in page layers, also those of earlier
 * checkpoints. `whole`: all in the content, as earlier versions read it.
 */
export type MemoryForm = 'shared pages' | 'whole';

export interface StoredSeal {
  readonly manifest: Manifest;
  /**
   * The size of the content on disk, and of the page layers that this checkpoint brings: allocated blocks, with each file
   * counted once however many hard links it has.
   */
  readonly bytes: number;
}

export interface Verified {
  /** With the digest of every selected file. */
  readonly manifest: Manifest;
  /** How many bytes were read. */
  readonly digested: number;
}

/** What this machine has of checkpoints and layers. */
export interface LocalCopies {
  /** Of the content of sealed checkpoints and of sealed layers; a layer counts once. */
  readonly bytes: number;
  readonly sealed: readonly CheckpointId[];
  /** Checkpoints whose removal has begun, and was interrupted or could not end yet. */
  readonly leftovers: readonly CheckpointId[];
}

export interface StoredCheckpoint {
  readonly id: CheckpointId;
  readonly state: 'staged' | 'sealed' | 'removing';
}

/**
 * Selects entries of the content by the first component of their paths. `except` includes the layers of files, and `only`
 * leaves them out. Page layers go with the memory: they are selected when the content of the memory is.
 */
export interface ContentSelection {
  readonly how: 'only' | 'except';
  readonly names: readonly string[];
  /** The content directory alone, without any layers. */
  readonly layers?: 'none';
}

/** Without a selection every entry is selected. */
export function isSelected(path: string, selection: ContentSelection | undefined): boolean {
  if (selection === undefined) return true;
  const [first = ''] = path.split('/', 1);
  return selection.names.includes(first) === (selection.how === 'only');
}

/**
 * Whether the selection includes the layers of a part. Those of the part `layers` are files, which a selection of the memory
 * alone leaves out. The layers of another part go with its content.
 */
export function selectsLayersOf(
  { name, top }: ContentPart,
  selection: ContentSelection | undefined,
): boolean {
  if (selection?.layers === 'none') return false;
  if (name === 'layers') return selection?.how !== 'only';
  return top.some((entry) => isSelected(entry, selection));
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
   * Creates an empty private directory for the runtime to fill. Empties the directory of an id that is staged already. Throws
   * `conflict` for an id that is sealed.
   */
  stage(id: CheckpointId, signal?: AbortSignal): Promise<Staging>;
  /**
   * Makes the staged content durable and seals it in one atomic step. The caller makes sure that nothing writes into it
   * while this runs, and that the layers are sealed. After a failure nothing is sealed, and the same staging may be sealed
   * again. Sealing a sealed checkpoint changes nothing and returns its manifest.
   */
  seal(staging: Staging, manifest: ManifestDraft, signal?: AbortSignal): Promise<StoredSeal>;
  /** Returns the manifest after checking its checksum and id. Does not read the content. */
  read(id: CheckpointId, signal?: AbortSignal): Promise<Manifest>;
  /**
   * Quick: checks the manifest, the names, types and sizes of the selected entries, and the seals of the selected layers. An
   * additional entry is damage too. Does not notice damage to anything that is not selected.
   */
  inspect(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection): Promise<Manifest>;
  /**
   * Slow: `inspect`, then reads the selected content, the layers of files that this checkpoint owns, and its page layers. The first run that reads an
   * entry records its digest; each later run compares with it. A change of content before the first run is not noticed.
   * With `giveWay` it gives way while it reads.
   */
  verify(
    id: CheckpointId,
    signal?: AbortSignal,
    selection?: ContentSelection,
    giveWay?: GiveWay,
  ): Promise<Verified>;
  /**
   * Rebuilds the manifest of a sealed checkpoint from the part records when the manifest is damaged or missing. All part
   * records must be present with valid checksums; otherwise throws the error of `read`. An undamaged manifest does not change.
   */
  rebuild(id: CheckpointId, signal?: AbortSignal): Promise<Manifest>;
  /** Where the checkpoint is, for people: shown in errors and events. */
  location(id: CheckpointId): string;
  /** The content directory of a sealed checkpoint, for the runtime to read from. */
  path(id: CheckpointId): string;
  /**
   * Removes a checkpoint that is staged or sealed, and its layers that no other checkpoint claims and no sandbox has mounted.
   * Does nothing when the checkpoint does not exist. After a crash during the removal, `list` shows the checkpoint as
   * `removing`. Throws `transitioning` for a sealed checkpoint while a backup holds the store.
   */
  remove(id: CheckpointId): Promise<void>;
  /**
   * Lists each checkpoint at least once. A checkpoint that changes its state meanwhile may be listed twice, the newer state
   * last.
   */
  list(): AsyncIterable<StoredCheckpoint>;
  usage(): Promise<{ readonly freeBytes: number; readonly totalBytes: number }>;
  /** Measures each checkpoint and layer once, because they do not change. */
  copies(signal?: AbortSignal): Promise<LocalCopies>;
  /** Whether this machine has anything of the sealed checkpoint. */
  has(id: CheckpointId): Promise<boolean>;
  /** Milliseconds: the last `recordUse`, or the seal. 0 for a checkpoint that is not here. Survives a restart. */
  lastUse(id: CheckpointId): Promise<number>;
  /** Does nothing for a checkpoint that is not here. */
  recordUse(id: CheckpointId, now: number): Promise<void>;
}
