/**
 * Derives change events from two states of an entry. `fs.watch` reports only that a name was created, removed or moved
 * ("rename"), or that its content or its mode changed ("change"). Comparing the state before with the state now
 * gives the rest.
 */
import type { BigIntStats } from 'node:fs';

export type ChangeType = 'create' | 'write' | 'remove' | 'rename' | 'chmod';
export type Hint = 'rename' | 'change';

export interface EntryState {
  readonly inode: bigint;
  readonly born: bigint;
  readonly mode: bigint;
  readonly owner: string;
  readonly size: bigint;
  readonly modified: bigint;
  readonly changed: bigint;
  readonly kind: 'file' | 'directory' | 'other';
}

export function entryStateOf(found: BigIntStats): EntryState {
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
 * The changes of a name that did not exist before. A new file with content was also written, perhaps elsewhere and
 * then moved here. A file that the agent creates (`isAgentChange`) gets its owner before its content.
 */
export function changesOfNewEntry(
  now: EntryState,
  hints: ReadonlySet<Hint>,
  isAgentChange: boolean,
): ChangeType[] {
  const isWritten = now.kind === 'file' && now.size > 0n;
  if (isAgentChange) return isWritten ? ['create', 'chmod', 'write'] : ['create', 'chmod'];
  // A write changes both times to the same value. Without content, "change" cannot have meant a write.
  const isAdjusted = hints.has('change') && (!isWritten || now.changed !== now.modified);
  return ['create', ...(isWritten ? ['write' as const] : []), ...(isAdjusted ? ['chmod' as const] : [])];
}

/** The changes of a name that existed before and still exists. */
export function changesOf(
  before: EntryState,
  now: EntryState,
  hints: ReadonlySet<Hint>,
  isAgentChange: boolean,
): ChangeType[] {
  if (now.kind !== before.kind) return ['remove', ...changesOfNewEntry(now, hints, isAgentChange)];
  // Another file has taken the name. For a watcher of the name, that is a write.
  const isReplaced = now.inode !== before.inode || now.born !== before.born;
  if (isReplaced && now.kind !== 'file') return changesOfNewEntry(now, hints, isAgentChange);
  if (isReplaced) return isAgentChange ? ['chmod', 'write'] : ['write'];
  if (!hints.has('change')) return [];
  const isSame = now.mode === before.mode && now.owner === before.owner && now.changed === before.changed;
  // The modification time of a directory changes with its entries, which have events of their own.
  if (now.kind === 'directory') return isSame ? [] : ['chmod'];
  const changes: ChangeType[] = [];
  const isWritten = now.modified !== before.modified || now.size !== before.size;
  if (isWritten) changes.push('write');
  if (now.mode !== before.mode || now.owner !== before.owner) changes.push('chmod');
  if (changes.length > 0) return changes;
  // Two writes within one tick of the kernel's clock leave the same times. Report a write rather than miss one.
  return now.changed === before.changed ? ['write'] : ['chmod'];
}
