/** What a copy step takes of an uploaded archive. */
import { posix } from 'node:path';
import type { Source, TarItem } from '@torpor/build-steps';
import { TorporError } from '@torpor/protocol';
import { contentOf, type StoredArchive } from './file-store.ts';
import type { ArchiveEntry } from './inspect-archive.ts';

/**
 * The client has chosen the files by the pattern already. A file is copied under its name; a directory, and the part of a
 * pattern before its first wildcard, is copied with what is below it.
 */
export function sourcesIn({ path, entries }: StoredArchive, source: string): Source[] {
  const base = withoutWildcards(source);
  const itemOf = (entry: ArchiveEntry, as: string): TarItem => {
    const { type, mode, mtime, size, target } = entry;
    const common = { path: as, type, mode, mtime, size };
    if (type === 'link') return { ...common, target: target ?? '' };
    return type === 'file' ? { ...common, content: () => contentOf(path, entry) } : common;
  };
  const own = entries.find((entry) => entry.path === base);
  if (own !== undefined && own.type !== 'directory')
    return [{ isDirectory: false, items: [itemOf(own, posix.basename(base))] }];
  const prefix = base === '' ? '' : `${base}/`;
  const below = entries.filter((entry) => entry.path.startsWith(prefix));
  if (own === undefined && below.length === 0)
    throw new TorporError('invalid_request', `The uploaded archive has no "${source.slice(0, 200)}".`);
  return [{ isDirectory: true, items: below.map((entry) => itemOf(entry, entry.path.slice(prefix.length))) }];
}

function withoutWildcards(source: string): string {
  const names = posix.normalize(`/${source}`).slice(1).replace(/\/$/, '').split('/');
  const first = names.findIndex((name) => /[*?[{]/.test(name));
  return (first < 0 ? names : names.slice(0, first)).join('/');
}
