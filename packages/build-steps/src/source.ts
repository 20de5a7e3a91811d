/** Files that a step copies: of a local build context, or of an uploaded archive. */
import { createHash } from 'node:crypto';
import type { TarItem } from './tar-stream.ts';

/** A file, or a directory whose contents are copied. */
export interface Source {
  readonly isDirectory: boolean;
  /** Paths begin below the directory; that of a file is its name. */
  readonly items: readonly TarItem[];
}

/** Identifies the content of sources, whatever the times of their files. */
export async function digestOf(sources: readonly Source[]): Promise<string> {
  const hash = createHash('sha256');
  for (const { isDirectory, items } of sources) {
    hash.update(JSON.stringify(['source', isDirectory]));
    for (const { path, type, mode, size, target = '', content } of items) {
      hash.update(JSON.stringify([path, type, mode, size, target]));
      for await (const chunk of content?.() ?? []) hash.update(chunk);
    }
  }
  return hash.digest('hex');
}
