import { describe, expect, it } from 'vitest';
import { changesOf, changesOfNewEntry, type EntryState, type Hint } from './entry-changes.ts';

const before: EntryState = {
  inode: 1n,
  born: 1n,
  mode: 0o100644n,
  owner: '0:0',
  size: 5n,
  modified: 10n,
  changed: 10n,
  kind: 'file',
};

const changes = (now: Partial<EntryState>, ...hints: Hint[]) =>
  changesOf(before, { ...before, ...now }, new Set(hints), false);

describe('the changes of an existing entry', () => {
  it('are a write when size or modification time differ', () => {
    expect(changes({ modified: 11n, changed: 11n }, 'change')).toEqual(['write']);
    expect(changes({ size: 6n }, 'change')).toEqual(['write']);
  });

  it('are a chmod when only mode or owner differ', () => {
    expect(changes({ mode: 0o100600n, changed: 11n }, 'change')).toEqual(['chmod']);
    expect(changes({ owner: '1:1', changed: 11n }, 'change')).toEqual(['chmod']);
    expect(changes({ changed: 11n }, 'change')).toEqual(['chmod']);
  });

  it('are both when both differ', () => {
    expect(changes({ modified: 11n, mode: 0o100600n, changed: 12n }, 'change')).toEqual(['write', 'chmod']);
  });

  it('are a write when two changes fell into one tick of the clock', () => {
    expect(changes({}, 'change')).toEqual(['write']);
  });

  it('are a write when another file was moved over it', () => {
    expect(changes({ inode: 2n, born: 2n }, 'rename')).toEqual(['write']);
  });

  it('are none when the new name was examined already', () => {
    expect(changes({}, 'rename')).toEqual([]);
  });

  it('are a removal and a creation when its kind has changed', () => {
    expect(changes({ kind: 'directory', inode: 2n }, 'rename')).toEqual(['remove', 'create']);
  });

  it('are a chmod for a directory, whose modification time changes with its entries', () => {
    const directory: EntryState = { ...before, kind: 'directory' };
    const now = { ...directory, modified: 11n, changed: 11n };
    expect(changesOf(directory, now, new Set(['change']), false)).toEqual(['chmod']);
  });

  it('are none for a directory whose chmod was examined already', () => {
    const directory: EntryState = { ...before, kind: 'directory' };
    expect(changesOf(directory, directory, new Set(['change']), false)).toEqual([]);
  });

  it('include a chmod when the agent replaced the file, which sets its owner', () => {
    const now = { ...before, inode: 2n, born: 2n };
    expect(changesOf(before, now, new Set(['rename']), true)).toEqual(['chmod', 'write']);
  });
});

describe('the changes of a new entry', () => {
  const came = (now: Partial<EntryState> = {}, hints: Hint[] = [], isOwn = false) =>
    changesOfNewEntry({ ...before, ...now }, new Set(hints), isOwn);

  it('include a write when there is content', () => {
    expect(came()).toEqual(['create', 'write']);
    expect(came({ size: 0n })).toEqual(['create']);
    expect(came({ kind: 'directory' })).toEqual(['create']);
  });

  it('include a chmod when something other than the content changed', () => {
    expect(came({ size: 0n }, ['change'])).toEqual(['create', 'chmod']);
    expect(came({ changed: 11n }, ['change'])).toEqual(['create', 'write', 'chmod']);
    expect(came({}, ['change'])).toEqual(['create', 'write']);
    expect(came({ changed: 11n })).toEqual(['create', 'write']);
    expect(came({ kind: 'directory' }, ['change'])).toEqual(['create', 'chmod']);
  });

  it('are create, chmod and write for a file that the agent creates', () => {
    expect(came({}, [], true)).toEqual(['create', 'chmod', 'write']);
    expect(came({ size: 0n }, [], true)).toEqual(['create', 'chmod']);
    expect(came({ kind: 'directory' }, [], true)).toEqual(['create', 'chmod']);
  });
});
