/** A checkpoint store in memory, for tests that run thousands of histories. It keeps the port's promises. */
import { type CheckpointId, TorporError } from '@torpor/protocol';
import type { CheckpointStore, Manifest, Staging } from '../src/ports/checkpoint-store.ts';

/** Text by path; what a runtime puts into a staging directory and reads from a sealed one. */
export interface Files {
  put(path: string, text: string): Promise<void>;
  get(path: string): Promise<string | undefined>;
}

interface Kept {
  state: 'staged' | 'sealed';
  content: Map<string, string>;
  manifest: Manifest | undefined;
}

export class VirtualStore implements CheckpointStore, Files {
  private readonly kept = new Map<CheckpointId, Kept>();

  async put(path: string, text: string): Promise<void> {
    const [id, name] = this.split(path);
    const kept = this.kept.get(id);
    // A real directory that was removed cannot be written into either.
    if (kept?.state !== 'staged') throw new TorporError('storage_readonly', `${path} cannot be written.`);
    kept.content.set(name, text);
  }

  async get(path: string): Promise<string | undefined> {
    const [id, name] = this.split(path);
    return this.kept.get(id)?.content.get(name);
  }

  async stage(id: CheckpointId): Promise<Staging> {
    if (this.kept.get(id)?.state === 'sealed') throw new TorporError('conflict', `${id} is sealed.`);
    this.kept.set(id, { state: 'staged', content: new Map(), manifest: undefined });
    return { checkpointId: id, path: this.path(id) };
  }

  async seal(staging: Staging, manifest: Omit<Manifest, 'entries' | 'version'>) {
    const kept = this.kept.get(staging.checkpointId);
    if (kept === undefined)
      throw new TorporError('checkpoint_missing', `${staging.checkpointId} was not staged.`);
    const entries = [...kept.content].map(([path, text]) => ({
      path,
      type: 'file' as const,
      bytes: text.length,
    }));
    kept.manifest ??= { ...manifest, version: 1, entries };
    kept.state = 'sealed';
    return { manifest: kept.manifest, bytes: entries.reduce((sum, { bytes }) => sum + bytes, 0) };
  }

  async read(id: CheckpointId): Promise<Manifest> {
    const kept = this.kept.get(id);
    if (kept?.manifest === undefined) throw this.missing(id);
    return kept.manifest;
  }

  async inspect(id: CheckpointId): Promise<Manifest> {
    const manifest = await this.read(id);
    for (const { path, bytes } of manifest.entries) {
      const text = this.kept.get(id)?.content.get(path);
      if (text === undefined) throw this.missing(id);
      if (text.length !== bytes)
        throw new TorporError('checkpoint_corrupt', `${path} of ${id} has another size.`);
    }
    return manifest;
  }

  async verify(id: CheckpointId) {
    return { manifest: await this.inspect(id), digested: 0 };
  }

  location(id: CheckpointId): string {
    return this.path(id);
  }

  path(id: CheckpointId): string {
    return `virtual:${id}`;
  }

  async remove(id: CheckpointId): Promise<void> {
    this.kept.delete(id);
  }

  async *list() {
    for (const [id, { state }] of [...this.kept]) yield { id, state };
  }

  async usage() {
    return { freeBytes: Number.MAX_SAFE_INTEGER, totalBytes: Number.MAX_SAFE_INTEGER };
  }

  /** What a bad disk does. */
  damage(id: CheckpointId, how: 'missing' | 'corrupt'): void {
    const content = this.kept.get(id)?.content;
    for (const [path, text] of content ?? []) {
      if (how === 'missing') content?.delete(path);
      else content?.set(path, `${text}!`);
    }
  }

  private missing(id: CheckpointId): TorporError {
    return new TorporError('checkpoint_missing', `Checkpoint ${id} is not in the store.`, {
      checkpointId: id,
    });
  }

  private split(path: string): [CheckpointId, string] {
    const [place, name = ''] = path.split('/');
    return [(place ?? '').slice('virtual:'.length) as CheckpointId, name];
  }
}
