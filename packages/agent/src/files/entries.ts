/** Describes a file, a directory or a link to clients. */
import type { BigIntStats } from 'node:fs';
import { lstat, realpath, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { type EntryInfo, EntryInfoSchema, FileType } from '@torpor/envd';
import type { AccountNames } from '../identity/account-names.ts';
import { withFileErrors } from './file-errors.ts';
import type { FileMetadata } from './file-metadata.ts';
import type { Paths, ResolvedPath } from './paths.ts';

export interface EntryParts {
  readonly paths: Paths;
  readonly names: AccountNames;
  readonly metadata: FileMetadata;
}

export async function describeEntry(
  place: ResolvedPath,
  { paths, names, metadata }: EntryParts,
): Promise<EntryInfo> {
  const found = await withFileErrors(place.path, () => lstat(place.real, { bigint: true }));
  const link = found.isSymbolicLink() ? await followLink(place.real, paths) : undefined;
  return create(EntryInfoSchema, {
    name: basename(place.path),
    path: place.path,
    type: typeOf(link?.target ?? found),
    size: found.size,
    mode: Number((link?.target ?? found).mode & 0o7777n),
    permissions: permissionsText(Number(found.mode)),
    owner: await names.owner(Number(found.uid)),
    group: await names.group(Number(found.gid)),
    modifiedTime: {
      seconds: found.mtimeNs / 1_000_000_000n,
      nanos: Number(found.mtimeNs % 1_000_000_000n),
    },
    ...(link === undefined ? {} : { symlinkTarget: link.path }),
    metadata: { ...(await metadata.of(place.real)) },
  });
}

/** The end of a link, with the target's stat when the target exists and is inside the root. */
async function followLink(
  real: string,
  paths: Paths,
): Promise<{ path: string; target: BigIntStats | undefined }> {
  const path = await realpath(real).catch(() => undefined);
  if (path === undefined) return { path: real, target: undefined };
  const target = paths.allows(path) ? await stat(path, { bigint: true }).catch(() => undefined) : undefined;
  return { path, target };
}

function typeOf(found: BigIntStats): FileType {
  if (found.isFile()) return FileType.FILE;
  if (found.isDirectory()) return FileType.DIRECTORY;
  if (found.isSymbolicLink()) return FileType.SYMLINK;
  return FileType.UNSPECIFIED;
}

const KINDS: ReadonlyMap<number, string> = new Map([
  [0o140000, 's'],
  [0o120000, 'l'],
  [0o100000, '-'],
  [0o060000, 'b'],
  [0o040000, 'd'],
  [0o020000, 'c'],
  [0o010000, 'p'],
]);

/** As `ls -l` writes it: `-rw-r--r--`. */
function permissionsText(mode: number): string {
  const bits = [...'rwxrwxrwx'].map((letter, index) => (mode & (0o400 >> index) ? letter : '-'));
  const special = [
    { bit: 0o4000, at: 2, letters: 'sS' },
    { bit: 0o2000, at: 5, letters: 'sS' },
    { bit: 0o1000, at: 8, letters: 'tT' },
  ];
  for (const { bit, at, letters } of special) {
    if (mode & bit) bits[at] = letters.charAt(bits[at] === '-' ? 1 : 0);
  }
  return (KINDS.get(mode & 0o170000) ?? '?') + bits.join('');
}
