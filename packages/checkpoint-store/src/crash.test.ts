import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CheckpointStore } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FailingFs } from '../testing/failing-store-fs.ts';
import { fill, listed, manifestFor, newCheckpointId, sealSmall } from '../testing/small-checkpoint.ts';
import { openDirectoryStore } from './directory-store.ts';

/** Many small seals, each with its syncs. */
const LONG = 60_000;

let root: string;
let id: CheckpointId;
beforeEach(async () => {
  root = await files.mkdtemp(join(tmpdir(), 'checkpoint-crash-'));
  id = newCheckpointId();
});
afterEach(() => files.rm(root, { recursive: true, force: true }));

/**
 * Runs `work` with a crash at its first file system call, then at its second, and so on until `work` completes. After each
 * run, `check` opens the store as a new process would.
 */
async function crashAtEveryCall(options: {
  prepare(store: CheckpointStore): Promise<void>;
  work(store: CheckpointStore): Promise<unknown>;
  check(store: CheckpointStore): Promise<void>;
}): Promise<number> {
  for (let crashes = 0; ; crashes++) {
    await options.prepare(await openDirectoryStore({ root }));
    let first = Number.POSITIVE_INFINITY;
    const failing = new FailingFs((call) => (call.index === first + crashes ? 'crash' : undefined));
    const store = await openDirectoryStore({ root, fs: failing.fs });
    first = failing.calls.length;

    const through = await Promise.race([
      options.work(store).then(() => true),
      failing.crashed.then(() => false),
    ]);
    await failing.close();
    if (through) return crashes;

    const next = await openDirectoryStore({ root });
    await options.check(next);
    await next.remove(id);
    expect(await listed(next)).toEqual([]);
    for (const stage of ['staging', 'sealed', 'removing']) {
      expect(await files.readdir(join(root, stage))).toEqual([]);
    }
  }
}

describe('a crash at any file system call (R85)', { timeout: LONG }, () => {
  it('during seal leaves the checkpoint staged or sealed whole', async () => {
    const states = new Set<string>();
    const crashes = await crashAtEveryCall({
      prepare: async (store) => fill(await store.stage(id)),
      work: (store) =>
        store.seal({ checkpointId: id, path: join(root, 'staging', id, 'content') }, manifestFor(id)),
      check: async (store) => {
        const [only, ...rest] = await listed(store);
        expect(rest).toEqual([]);
        states.add(only?.state ?? 'absent');
        if (only?.state === 'sealed') {
          expect((await store.inspect(id)).entries).toHaveLength(5);
        } else {
          expect((await failureOf(store.inspect(id))).code).toBe('checkpoint_missing');
          await sealSmall(store, id);
          expect((await store.inspect(id)).entries).toHaveLength(5);
        }
      },
    });
    expect(states).toEqual(new Set(['staged', 'sealed']));
    expect(crashes).toBeGreaterThan(30);
  });

  it('during remove leaves the checkpoint sealed whole, or listed as removing', async () => {
    const states = new Set<string>();
    await crashAtEveryCall({
      prepare: async (store) => {
        await sealSmall(store, id);
      },
      work: (store) => store.remove(id),
      check: async (store) => {
        const [only, ...rest] = await listed(store);
        expect(rest).toEqual([]);
        states.add(only?.state ?? 'absent');
        if (only?.state === 'sealed') await store.inspect(id);
        else expect((await failureOf(store.inspect(id))).code).toBe('checkpoint_missing');
      },
    });
    expect(states).toEqual(new Set(['sealed', 'removing', 'absent']));
  });

  it('during the first verify leaves complete digests or none, and the checkpoint unchanged', async () => {
    await crashAtEveryCall({
      prepare: async (store) => {
        await sealSmall(store, id);
      },
      work: (store) => store.verify(id),
      check: async (store) => {
        await store.inspect(id);
        expect((await store.verify(id)).digested).toBe(9);
      },
    });
  });

  it('during stage leaves an id that can be staged again', async () => {
    await crashAtEveryCall({
      prepare: async (store) => fill(await store.stage(id)),
      work: (store) => store.stage(id),
      check: async (store) => {
        const staging = await store.stage(id);
        expect(await files.readdir(staging.path)).toEqual([]);
      },
    });
  });
});
