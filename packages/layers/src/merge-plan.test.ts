import { describe, expect, it } from 'vitest';
import { type MergeNode, planMerge } from './merge-plan.ts';

interface Marks {
  readonly opaque?: boolean;
  readonly redirect?: string;
}
type Node = MergeNode<string>;

/** A directory of a layer, with its entries by name. */
function directory(from: string, children: Record<string, Node> = {}, marks: Marks = {}): Node {
  const { opaque = false, redirect = null } = marks;
  return { from, kind: 'directory', opaque, redirect, children: new Map(Object.entries(children)) };
}
function leaf(from: string, kind: 'whiteout' | 'other' = 'other'): Node {
  return { from, kind, opaque: false, redirect: null, children: new Map() };
}

/** `path < origin`, and the marks for overlayfs. */
function planned(...tops: Node[]): string[] {
  return [...planMerge(tops)]
    .slice(1)
    .map(({ path, node, opaque, redirect }) => {
      const words = `${opaque ? ' opaque' : ''}${redirect === null ? '' : ` -> ${redirect}`}`;
      return `${path} < ${node.from}${node.kind === 'whiteout' ? ' whiteout' : ''}${words}`;
    })
    .sort();
}

describe('planMerge', () => {
  it('takes each entry from the newest layer that has it', () => {
    const newer = directory('2', { d: directory('2', { x: leaf('2') }) });
    const older = directory('1', { d: directory('1', { x: leaf('1'), y: leaf('1') }) });
    expect(planned(newer, older)).toEqual(['d < 2', 'd/x < 2', 'd/y < 1']);
  });

  it('keeps a whiteout, because there may be more below', () => {
    expect(planned(directory('2', { x: leaf('2', 'whiteout') }), directory('1', { x: leaf('1') }))).toEqual([
      'x < 2 whiteout',
    ]);
  });

  it('drops a whiteout where nothing can lie below', () => {
    const newer = directory('2', { d: directory('2', { x: leaf('2', 'whiteout') }) });
    const older = directory('1', { d: directory('1', { x: leaf('1') }, { opaque: true }) });
    expect(planned(newer, older)).toEqual(['d < 2 opaque']);
  });

  it('makes a directory opaque when one of its pieces is, and ends with that piece', () => {
    const top = directory('3', { d: directory('3') });
    const middle = directory('2', { d: directory('2', { x: leaf('2') }, { opaque: true }) });
    const bottom = directory('1', { d: directory('1', { y: leaf('1') }) });
    expect(planned(top, middle, bottom)).toEqual(['d < 3 opaque', 'd/x < 2']);
  });

  it('makes a directory opaque over a file or a whiteout', () => {
    const newer = directory('2', { d: directory('2'), e: directory('2') });
    const older = directory('1', { d: leaf('1'), e: leaf('1', 'whiteout') });
    expect(planned(newer, older)).toEqual(['d < 2 opaque', 'e < 2 opaque']);
  });

  it('follows a rename within a directory, and passes it on', () => {
    const newer = directory('2', {
      new: directory('2', {}, { redirect: 'old' }),
      old: leaf('2', 'whiteout'),
    });
    const older = directory('1', { old: directory('1', { x: leaf('1') }) });
    expect(planned(newer, older)).toEqual(['new < 2 -> old', 'new/x < 1', 'old < 2 whiteout']);
  });

  it('follows a rename of a rename', () => {
    const top = directory('3', { c: directory('3', {}, { redirect: 'b' }) });
    const middle = directory('2', { b: directory('2', {}, { redirect: '/far/a' }) });
    const bottom = directory('1', { far: directory('1', { a: directory('1', { x: leaf('1') }) }) });
    expect(planned(top, middle, bottom)).toContain('c < 3 -> /far/a');
    expect(planned(top, middle, bottom)).toContain('c/x < 1');
  });

  it('walks a far redirect through directories that were renamed themselves', () => {
    const top = directory('3', { moved: directory('3', {}, { redirect: '/p/d' }) });
    const middle = directory('2', { p: directory('2', {}, { redirect: 'q' }) });
    const bottom = directory('1', { q: directory('1', { d: directory('1', { x: leaf('1') }) }) });
    expect(planned(top, middle, bottom)).toContain('moved < 3 -> /q/d');
    expect(planned(top, middle, bottom)).toContain('moved/x < 1');
  });

  it('walks on past an opaque directory when what lies in it came from elsewhere', () => {
    const top = directory('3', { moved: directory('3', {}, { redirect: '/p/d' }) });
    const came = { d: directory('2', {}, { redirect: '/q/e' }) };
    const middle = directory('2', { p: directory('2', came, { opaque: true }) });
    const bottom = directory('1', { q: directory('1', { e: directory('1', { x: leaf('1') }) }) });
    expect(planned(top, middle, bottom)).toContain('moved < 3 -> /q/e');
    expect(planned(top, middle, bottom)).toContain('moved/x < 1');
  });

  it('looks below an opaque parent only where a redirect from the top leads there', () => {
    const inside = { far: directory('2', {}, { redirect: '/old' }), near: directory('2') };
    const newer = directory('2', { p: directory('2', inside, { opaque: true }) });
    const older = directory('1', {
      old: directory('1', { x: leaf('1') }),
      p: directory('1', { near: leaf('1') }),
    });
    expect(planned(newer, older)).toEqual([
      'old < 1',
      'old/x < 1',
      'p < 2 opaque',
      'p/far < 2 -> /old',
      'p/far/x < 1',
      'p/near < 2',
    ]);
  });

  it('plans trees that are deeper than the call stack', () => {
    let node = directory('bottom');
    for (let i = 0; i < 20_000; i++) node = directory('x', { d: node });
    let count = 0;
    for (const _ of planMerge([node, directory('y')])) count++;
    expect(count).toBe(20_001);
  });
});
