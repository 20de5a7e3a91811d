/**
 * From "something happened to this name" to what happened. The system tells only that a name came, went
 * or moved ("rename"), or that its content or its rights changed ("change"); the rest follows from what
 * was there before and what is there now.
 */
import type { BigIntStats } from 'node:fs';

export type ChangeType = 'create' | 'write' | 'remove' | 'rename' | 'chmod';
export type Hint = 'rename' | 'change';

export interface Seen {
  readonly inode: bigint;
  readonly born: bigint;
  readonly mode: bigint;
  readonly owner: string;
  readonly size: bigint;
  readonly modified: bigint;
  readonly changed: bigint;
  readonly kind: 'file' | 'directory' | 'other';
}

export function seen(found: BigIntStats): Seen {
  return {
    inode: found.ino,
    born: found.birthtimeNs,
    mode: found.mode,
    owner: `${found.uid}:${found.gid}`,
    size: found.size,
    modified: found.mtimeNs,
    changed: found.ctimeNs,
    kind: found.isFile() ? 'file' : found.isDirectory() ? 'directory' : 'other',
  };
}

/**
 * What happened to a name that was not there before. A file that comes with content was also written, perhaps
 * elsewhere and then moved here. What the agent makes (`isOwn`) is given to its owner before it is written.
 */
export function arrival(now: Seen, hints: ReadonlySet<Hint>, isOwn: boolean): ChangeType[] {
  const isWritten = now.kind === 'file' && now.size > 0n;
  if (isOwn) return isWritten ? ['create', 'chmod', 'write'] : ['create', 'chmod'];
  // A write changes both times to the same value. Without content, "change" cannot have meant a write.
  const isAdjusted = hints.has('change') && (!isWritten || now.changed !== now.modified);
  return ['create', ...(isWritten ? ['write' as const] : []), ...(isAdjusted ? ['chmod' as const] : [])];
}

/** What happened to a name that was there and still is. */
export function changesOf(before: Seen, now: Seen, hints: ReadonlySet<Hint>, isOwn: boolean): ChangeType[] {
  if (now.kind !== before.kind) return ['remove', ...arrival(now, hints, isOwn)];
  // Another file under the same name: to whoever watches the name, its content was written.
  const isReplaced = now.inode !== before.inode || now.born !== before.born;
  if (isReplaced && now.kind !== 'file') return arrival(now, hints, isOwn);
  if (isReplaced) return isOwn ? ['chmod', 'write'] : ['write'];
  if (!hints.has('change')) return [];
  const isSame = now.mode === before.mode && now.owner === before.owner && now.changed === before.changed;
  // A directory's own time changes with its entries, which are told by themselves.
  if (now.kind === 'directory') return isSame ? [] : ['chmod'];
  const changes: ChangeType[] = [];
  const isWritten = now.modified !== before.modified || now.size !== before.size;
  if (isWritten) changes.push('write');
  if (now.mode !== before.mode || now.owner !== before.owner) changes.push('chmod');
  if (changes.length > 0) return changes;
  // Two writes may share one tick of the clock: better one event too many than one too few.
  return now.changed === before.changed ? ['write'] : ['chmod'];
}
