import type { CheckpointView, SandboxView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { treeOf } from './checkpoint-tree.ts';

const checkpoint = (id: string, parentId: string | null, createdAt: number) =>
  ({ id, parentId, createdAt }) as CheckpointView;
const sandbox = (id: string, baseId: string | null, createdAt = 0) =>
  ({ id, baseId, createdAt, template: 'base' }) as SandboxView;

const drawn = (...args: Parameters<typeof treeOf>) =>
  treeOf(...args).map(({ node, lane, parentRow }) => [node.id, lane, parentRow]);

describe('the tree of checkpoints', () => {
  it('of a new sandbox is its template and the sandbox', () => {
    expect(drawn(sandbox('own', 'ckpt_base'), [], [])).toEqual([
      ['ckpt_base', 0, null],
      ['own', 0, 0],
    ]);
  });

  it('keeps a fork where it began, also after the fork has slept', () => {
    const checkpoints = [checkpoint('a', 'origin', 1)];
    const others = [sandbox('fork', 'own checkpoint of the fork', 2), sandbox('stranger', 'elsewhere', 2)];
    expect(drawn(sandbox('own', 'a'), checkpoints, others, new Map([['fork', 'a']]))).toEqual([
      ['origin', 0, null],
      ['a', 0, 0],
      ['fork', 1, 1],
      ['own', 0, 1],
    ]);
  });

  it('is one line while nothing branches', () => {
    const checkpoints = [checkpoint('b', 'a', 2), checkpoint('a', 'origin', 1)];
    expect(drawn(sandbox('own', 'b'), checkpoints, [])).toEqual([
      ['origin', 0, null],
      ['a', 0, 0],
      ['b', 0, 1],
      ['own', 0, 2],
    ]);
  });

  it('has a lane for each fork, and for what a rollback left behind', () => {
    const checkpoints = [checkpoint('a', null, 1), checkpoint('left', 'a', 2)];
    const own = sandbox('own', 'a');
    expect(drawn(own, checkpoints, [own, sandbox('fork', 'a', 3), sandbox('stranger', 'z', 4)])).toEqual([
      ['a', 0, null],
      ['left', 1, 0],
      ['fork', 2, 0],
      ['own', 0, 0],
    ]);
  });
});
