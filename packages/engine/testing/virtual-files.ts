/** A checkpoint store in memory, for tests that run thousands of histories. It fulfils the contract of the port. */
import type { GiveWay } from '@torpor/host';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import {
  type CheckpointStore,
  type ContentSelection,
  isSelected,
  type Manifest,
  type ManifestDraft,
  partsOfContent,
  type Staging,
} from '../src/ports/checkpoint-store.ts';

/** Texts by path: what a runtime writes into a staging directory and reads from a sealed one. */
export interface Files {
  put(path: string, text: string): Promise<void>;
  get(path: string): Promise<string | undefined>;
}

interface Kept {
  state: 'staged' | 'sealed';
  content: Map<string, string>;
  manifest: Manifest | undefined;
  /** The content as it was sealed, for `verify`. */
  sealed: ReadonlyMap<string, string>;
}

export interface VirtualCopy {
  readonly manifest: Manifest;
  readonly sealed: ReadonlyMap<string, string>;
}

export class VirtualStore implements CheckpointStore, Files {
  readonly #kept = new Map<CheckpointId, Kept>();
  readonly #away = new Map<CheckpointId, Kept>();
  readonly #uses = new Map<CheckpointId, number>();
  /** What `usage` answers. */
  room = { freeBytes: Number.MAX_SAFE_INTEGER, totalBytes: Number.MAX_SAFE_INTEGER };

  async put(path: string, text: string): Promise<void> {
    const [id, name] = this.#split(path);
    const kept = this.#kept.get(id);
    // A real directory that was removed cannot be written into either.
    if (kept?.state !== 'staged') throw new TorporError('storage_readonly', `${path} cannot be written.`);
    kept.content.set(name, text);
  }

  async get(path: string): Promise<string | undefined> {
    const [id, name] = this.#split(path);
    return this.#kept.get(id)?.content.get(name);
  }

  async stage(id: CheckpointId): Promise<Staging> {
    if (this.#kept.get(id)?.state === 'sealed') throw new TorporError('conflict', `${id} is sealed.`);
    this.#kept.set(id, { state: 'staged', content: new Map(), manifest: undefined, sealed: new Map() });
    return { checkpointId: id, path: this.path(id) };
  }

  async seal(staging: Staging, manifest: ManifestDraft) {
    const kept = this.#kept.get(staging.checkpointId);
    if (kept === undefined)
      throw new TorporError('checkpoint_missing', `${staging.checkpointId} was not staged.`);
    const entries = [...kept.content].map(([path, text]) => ({
      path,
      type: 'file' as const,
      bytes: text.length,
    }));
    const contents = partsOfContent(
      manifest.contents ?? [],
      entries.map(({ path }) => path),
    );
    kept.manifest ??= { ...manifest, version: 2, contents, entries };
    kept.state = 'sealed';
    kept.sealed = new Map(kept.content);
    return { manifest: kept.manifest, bytes: entries.reduce((sum, { bytes }) => sum + bytes, 0) };
  }

  async read(id: CheckpointId): Promise<Manifest> {
    const kept = this.#kept.get(id);
    if (kept?.manifest === undefined) throw this.#missing(id);
    return kept.manifest;
  }

  async inspect(id: CheckpointId, _?: AbortSignal, selection?: ContentSelection): Promise<Manifest> {
    const manifest = await this.read(id);
    for (const { path, bytes } of manifest.entries) {
      if (!isSelected(path, selection)) continue;
      const text = this.#kept.get(id)?.content.get(path);
      if (text === undefined) throw this.#missing(id, path);
      if (text.length !== bytes) throw this.#corrupt(id, path, 'size');
    }
    return manifest;
  }

  async verify(id: CheckpointId, signal?: AbortSignal, selection?: ContentSelection, giveWay?: GiveWay) {
    const manifest = await this.inspect(id, signal, selection);
    await giveWay?.();
    for (const { path } of manifest.entries) {
      const kept = this.#kept.get(id);
      if (!isSelected(path, selection) || kept?.content.get(path) === kept?.sealed.get(path)) continue;
      throw this.#corrupt(id, path, 'digest');
    }
    return { manifest, digested: 0 };
  }

  rebuild(id: CheckpointId): Promise<Manifest> {
    return this.read(id);
  }

  location(id: CheckpointId): string {
    return this.path(id);
  }

  path(id: CheckpointId): string {
    return `virtual:${id}`;
  }

  async remove(id: CheckpointId): Promise<void> {
    this.#kept.delete(id);
  }

  async *list() {
    for (const [id, { state }] of [...this.#kept]) yield { id, state };
  }

  async copies() {
    const sealed = [...this.#kept].filter(([, { state }]) => state === 'sealed');
    const sizes = sealed.flatMap(([, { content }]) => [...content.values()].map(({ length }) => length));
    return {
      bytes: sizes.reduce((sum, size) => sum + size, 0),
      sealed: sealed.map(([id]) => id),
      leftovers: [],
    };
  }

  async has(id: CheckpointId): Promise<boolean> {
    return this.#kept.get(id)?.state === 'sealed';
  }

  async lastUse(id: CheckpointId): Promise<number> {
    return this.#uses.get(id) ?? 0;
  }

  async recordUse(id: CheckpointId, now: number): Promise<void> {
    this.#uses.set(id, now);
  }

  async usage() {
    return this.room;
  }

  /** Damages one entry or all of them, like a failing disk. `altered` keeps size and syntax. */
  damage(id: CheckpointId, how: 'missing' | 'corrupt' | 'altered', entry?: string): void {
    const content = this.#kept.get(id)?.content;
    for (const [path, text] of [...(content ?? [])]) {
      if (entry !== undefined && entry !== path) continue;
      if (how === 'missing') content?.delete(path);
      else content?.set(path, how === 'corrupt' ? `${text}!` : altered(text));
    }
  }

  /** Undoes `damage`, like a restored backup. */
  mend(id: CheckpointId): void {
    const kept = this.#kept.get(id);
    if (kept !== undefined) kept.content = new Map(kept.sealed);
  }

  /** Moves the directory of a checkpoint elsewhere; `bringBack` moves it back. */
  takeAway(id: CheckpointId): void {
    this.#move(id, this.#kept, this.#away);
  }

  bringBack(id: CheckpointId): void {
    this.#move(id, this.#away, this.#kept);
  }

  /** A copy of a sealed checkpoint, for the store of another machine. */
  copyOf(id: CheckpointId): VirtualCopy | undefined {
    const kept = this.#kept.get(id);
    return kept?.manifest === undefined ? undefined : { manifest: kept.manifest, sealed: kept.sealed };
  }

  /** Puts a copy of another machine in place. */
  place(id: CheckpointId, { manifest, sealed }: VirtualCopy): void {
    this.#kept.set(id, { state: 'sealed', content: new Map(sealed), manifest, sealed });
  }

  #move(id: CheckpointId, from: Map<CheckpointId, Kept>, to: Map<CheckpointId, Kept>): void {
    const kept = from.get(id);
    from.delete(id);
    if (kept !== undefined) to.set(id, kept);
  }

  #missing(id: CheckpointId, entry?: string): TorporError {
    const what = entry === undefined ? `Checkpoint ${id}` : `${entry} of ${id}`;
    return new TorporError('checkpoint_missing', `${what} is not in the store.`, {
      checkpointId: id,
      details: { location: this.location(id), ...(entry === undefined ? {} : { entry }) },
    });
  }

  #corrupt(id: CheckpointId, entry: string, damage: 'size' | 'digest'): TorporError {
    return new TorporError('checkpoint_corrupt', `${entry} of ${id} has another ${damage}.`, {
      checkpointId: id,
      details: { location: this.location(id), entry, damage },
    });
  }

  #split(path: string): [CheckpointId, string] {
    const [place, name = ''] = path.split('/');
    return [(place ?? '').slice('virtual:'.length) as CheckpointId, name];
  }
}

function altered(text: string): string {
  return text.replace(/[a-z0-9](?=[^a-z0-9]*$)/i, (last) => (last === '7' ? '8' : '7'));
}
