import type { SandboxView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { chosenSandboxes, expiryOf, type ListChoice } from './list-order.ts';

const sandbox = (over: Partial<SandboxView>) =>
  ({
    id: 'sbx_1',
    name: null,
    state: 'running',
    template: 'base',
    runtime: 'gvisor',
    metadata: {},
    createdAt: 0,
    endsAt: null,
    deletesAt: null,
    ...over,
  }) as SandboxView;

const choice: ListChoice = { group: 'all', text: '', sortBy: 'created', descending: true };
const ids = (all: SandboxView[], more: Partial<ListChoice> = {}) =>
  chosenSandboxes(all, { ...choice, ...more }).map(({ id }) => id);

describe('the list of sandboxes', () => {
  const all = [
    sandbox({ id: 'sbx_a', name: 'Web', createdAt: 1, endsAt: 50 }),
    sandbox({ id: 'sbx_b', state: 'paused', createdAt: 2, metadata: { user: 'ada' }, deletesAt: 20 }),
    sandbox({ id: 'sbx_c', name: 'api', state: 'lost', createdAt: 3 }),
    sandbox({ id: 'sbx_d', state: 'killed', createdAt: 4 }),
  ] as SandboxView[];

  it('shows the newest first, and no killed ones unless they are asked for', () => {
    expect(ids(all)).toEqual(['sbx_c', 'sbx_b', 'sbx_a']);
    expect(ids(all, { group: 'killed' })).toEqual(['sbx_d']);
    expect(ids(all, { group: 'trouble' })).toEqual(['sbx_c']);
  });

  it('finds every word in names, ids and metadata', () => {
    expect(ids(all, { text: 'user=ada' })).toEqual(['sbx_b']);
    expect(ids(all, { text: 'WEB base' })).toEqual(['sbx_a']);
    expect(ids(all, { text: 'web ada' })).toEqual([]);
  });

  it('sorts by what ends first, and what never ends comes last', () => {
    expect(ids(all, { sortBy: 'expires', descending: false })).toEqual(['sbx_b', 'sbx_a', 'sbx_c']);
  });

  it('sorts named sandboxes before unnamed ones', () => {
    expect(ids(all, { sortBy: 'name', descending: false })).toEqual(['sbx_c', 'sbx_a', 'sbx_b']);
  });

  it('counts the lifetime of a running sandbox and the retention of a paused one', () => {
    expect(expiryOf(sandbox({ endsAt: 5, deletesAt: 9 }))).toBe(5);
    expect(expiryOf(sandbox({ state: 'paused', endsAt: 5, deletesAt: 9 }))).toBe(9);
    expect(expiryOf(sandbox({ state: 'killed', endsAt: 5, deletesAt: 9 }))).toBeNull();
  });
});
