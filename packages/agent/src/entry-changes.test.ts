import { describe, expect, it } from 'vitest';
import { arrival, changesOf, type Hint, type Seen } from './entry-changes.ts';

const before: Seen = {
  inode: 1n,
  born: 1n,
  mode: 0o100644n,
  owner: '0:0',
  size: 5n,
  modified: 10n,
  changed: 10n,
  kind: 'file',
};

const changes = (now: Partial<Seen>, ...hints: Hint[]) =>
  changesOf(before, { ...before, ...now }, new Set(hints));

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
    const directory: Seen = { ...before, kind: 'directory' };
    expect(changesOf(directory, { ...directory, modified: 11n }, new Set(['change']))).toEqual(['chmod']);
  });
});

describe('an arrival', () => {
  it('is also a write when there is content', () => {
    expect(arrival(before)).toEqual(['create', 'write']);
    expect(arrival({ ...before, size: 0n })).toEqual(['create']);
    expect(arrival({ ...before, kind: 'directory' })).toEqual(['create']);
  });
});
