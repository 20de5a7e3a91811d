import { type Instance, systemClock } from '@torpor/engine';
import { newInstance } from '@torpor/engine/testing';
import type { LayerId } from '@torpor/layers';
import { describe, expect, it } from 'vitest';
import type { InstanceRecord } from './instance/instance-files.ts';
import { LayerMerging } from './layer-merging.ts';

const id = (n: number) => `lay_${String(n).repeat(20)}` as LayerId;
const lower = [1, 2, 3].map((n) => ({ id: id(n), nonce: '', owner: 'ckpt_a' as const }));
const unhurried = new AbortController().signal;

/** Merges as slowly as the test wants. */
function mergingWorld(instance: Instance) {
  let record = { lower, merged: null, capturedFor: null } as unknown as InstanceRecord;
  const merged = Promise.withResolvers<LayerId>();
  const asked: (readonly LayerId[])[] = [];
  const removed: LayerId[] = [];
  let waited: (() => void) | undefined;
  const merging = new LayerMerging(
    {
      clock: {
        ...systemClock,
        sleep: (_, signal) =>
          new Promise((resolve, reject) => {
            waited = resolve;
            signal?.addEventListener('abort', () => reject(signal.reason));
          }),
      },
      diskProjects: null,
      files: {
        read: () => record,
        write: async (_: Instance, next: InstanceRecord) => {
          record = next;
        },
      } as never,
      layers: {
        merge: (from: readonly LayerId[]) => {
          asked.push(from);
          return merged.promise;
        },
        remove: async (layer: LayerId) => void removed.push(layer),
      } as never,
      report: () => {},
    },
    (_, work) => work(),
  );
  merging.begin(instance);
  return {
    merging,
    asked,
    removed,
    finishMerge: () => merged.resolve(id(9)),
    passTime: () => waited?.(),
    capture: () => {
      record = { ...record, capturedFor: { checkpoint: 'ckpt_b', sealed: 'copy' } } as InstanceRecord;
    },
    record: () => record,
  };
}

describe('the layers under a running instance', () => {
  it('are merged, all but the one of the template, before a capture that waits for it', async () => {
    const instance = newInstance();
    const world = mergingWorld(instance);
    let isOver = false;
    const finishing = world.merging.finish(instance, unhurried).then(() => {
      isOver = true;
    });
    await expect.poll(() => world.asked).toEqual([[id(1), id(2)]]);
    expect(isOver).toBe(false);
    world.finishMerge();
    await finishing;
    expect(world.record().merged).toBe(id(9));
    // Nothing is left to wait for.
    await world.merging.finish(instance, unhurried);
  });

  it('keep no capture waiting for ever', async () => {
    const instance = newInstance();
    const world = mergingWorld(instance);
    const finishing = world.merging.finish(instance, unhurried);
    world.passTime();
    await finishing;
    world.capture();
    world.finishMerge();
    await world.merging.close();
    expect(world.record().merged).toBeNull();
    expect(world.removed).toEqual([id(9)]);
  });
});
