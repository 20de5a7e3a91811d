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

describe('what happened to a name', () => {
  it('was a write when content or its time differ', () => {
    expect(changes({ modified: 11n, changed: 11n }, 'change')).toEqual(['write']);
    expect(changes({ size: 6n }, 'change')).toEqual(['write']);
  });

  it('was a change of rights when only those differ', () => {
    expect(changes({ mode: 0o100600n, changed: 11n }, 'change')).toEqual(['chmod']);
    expect(changes({ owner: '1:1', changed: 11n }, 'change')).toEqual(['chmod']);
    expect(changes({ changed: 11n }, 'change')).toEqual(['chmod']);
  });

  it('was both when both differ', () => {
    expect(changes({ modified: 11n, mode: 0o100600n, changed: 12n }, 'change')).toEqual(['write', 'chmod']);
  });

  it('is told as a write when two of them fell into one tick of the clock', () => {
    expect(changes({}, 'change')).toEqual(['write']);
  });

  it('was a write when another file was moved over it', () => {
    expect(changes({ inode: 2n, born: 2n }, 'rename')).toEqual(['write']);
  });

  it('was nothing when a name that came was seen already', () => {
    expect(changes({}, 'rename')).toEqual([]);
  });

  it('was a removal and a creation when it is something else now', () => {
    expect(changes({ kind: 'directory', inode: 2n }, 'rename')).toEqual(['remove', 'create']);
  });

  it('was a change of rights for a directory, whose time changes with its entries', () => {
    const directory: EntryState = { ...before, kind: 'directory' };
    const now = { ...directory, modified: 11n, changed: 11n };
    expect(changesOf(directory, now, new Set(['change']), false)).toEqual(['chmod']);
  });

  it('was nothing for a directory whose change of rights was seen already', () => {
    const directory: EntryState = { ...before, kind: 'directory' };
    expect(changesOf(directory, directory, new Set(['change']), false)).toEqual([]);
  });

  it('was also a change of rights when the agent replaced the file, which gives it to its owner', () => {
    const now = { ...before, inode: 2n, born: 2n };
    expect(changesOf(before, now, new Set(['rename']), true)).toEqual(['chmod', 'write']);
  });
});

describe('an arrival', () => {
  const came = (now: Partial<EntryState> = {}, hints: Hint[] = [], isOwn = false) =>
    changesOfNewEntry({ ...before, ...now }, new Set(hints), isOwn);

  it('is also a write when there is content', () => {
    expect(came()).toEqual(['create', 'write']);
    expect(came({ size: 0n })).toEqual(['create']);
    expect(came({ kind: 'directory' })).toEqual(['create']);
  });

  it('is also a change of rights when something changed and it was not, or not only, the content', () => {
    expect(came({ size: 0n }, ['change'])).toEqual(['create', 'chmod']);
    expect(came({ changed: 11n }, ['change'])).toEqual(['create', 'write', 'chmod']);
    expect(came({}, ['change'])).toEqual(['create', 'write']);
    expect(came({ changed: 11n })).toEqual(['create', 'write']);
    expect(came({ kind: 'directory' }, ['change'])).toEqual(['create', 'chmod']);
  });

  it('of what the agent makes is a change of rights before it is a write', () => {
    expect(came({}, [], true)).toEqual(['create', 'chmod', 'write']);
    expect(came({ size: 0n }, [], true)).toEqual(['create', 'chmod']);
    expect(came({ kind: 'directory' }, [], true)).toEqual(['create', 'chmod']);
  });
});
