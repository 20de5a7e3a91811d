import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { failureOf } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listed, newCheckpointId, sealSmall } from '../testing/small-checkpoint.ts';
import { openDirectoryStore } from './directory-store.ts';
import { currentHold, holdStore } from './store-hold.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'store-hold-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

describe('a hold on the store', () => {
  it('keeps sealed checkpoints from being removed until it is released', async () => {
    const store = await openDirectoryStore({ root });
    const id = newCheckpointId();
    await sealSmall(store, id);
    const hold = await holdStore(root);
    expect(await failureOf(store.remove(id))).toMatchObject({ code: 'transitioning', checkpointId: id });
    expect(await listed(store)).toEqual([{ id, state: 'sealed' }]);
    hold.assertHeld();
    await hold.release();
    await store.remove(id);
    expect(await listed(store)).toEqual([]);
  });

  it('does not keep staged checkpoints', async () => {
    const store = await openDirectoryStore({ root });
    const hold = await holdStore(root);
    const id = newCheckpointId();
    await store.stage(id);
    await store.remove(id);
    expect(await listed(store)).toEqual([]);
    await hold.release();
  });

  it('ends when its process has not touched it for long', async () => {
    const hold = await holdStore(root);
    const [name = ''] = await readdir(join(root, 'holds'));
    expect(await currentHold(root)).toBe(name);
    const before = Date.now() / 1000 - 120;
    await utimes(join(root, 'holds', name), before, before);
    expect(await currentHold(root)).toBeUndefined();
    expect(await readdir(join(root, 'holds'))).toEqual([]);
    await hold.release();
  });

  it('counts beside a stale one', async () => {
    const hold = await holdStore(root);
    const stale = join(root, 'holds', '0');
    await writeFile(stale, '');
    await utimes(stale, 0, 0);
    expect(await currentHold(root)).not.toBe('0');
    expect(await currentHold(root)).toBeDefined();
    await hold.release();
  });
});
