import type { Instance } from '@torpor/engine';
import { systemClock } from '@torpor/engine';
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterEach, describe, expect, it } from 'vitest';
import { MemoryBudget } from '../caches/memory-budget.ts';
import { unassignedName } from '../container/container-setup.ts';
import type { InstanceRecord } from '../instance/instance-files.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { WarmInstances } from './warm-instances.ts';

const [SANDBOX, CHECKPOINT]: [SandboxId, CheckpointId] = ['sbx_a', 'ckpt_a'];
const TAG = 'abcdef';

describe('the instances that stay in memory', () => {
  const warmMemory = new MemoryBudget(1024 ** 3);
  const ended: Instance[] = [];
  let endNow = Promise.resolve();
  /** The checkpoint that each frozen instance was captured for. */
  const captured = new Map<string, CheckpointId>();
  const recordOf = (sandboxId: SandboxId) =>
    ({
      container: { id: unassignedName(TAG, 'x') },
      runsc: 'x',
      resources: {},
      capturedFor: { checkpoint: captured.get(sandboxId), sealed: 'copy' },
    }) as unknown as InstanceRecord;
  const ctx = {
    files: { read: ({ sandboxId }: Instance) => recordOf(sandboxId) },
    runsc: { memoryBytes: async () => 1_000, stopFrozen: async () => true },
    images: { evict: async () => {} },
    cgroups: null,
    network: { reopen: async () => ({}) },
    warmMemory,
    clock: systemClock,
    faults: { pass: async () => {} },
    report: () => {},
    settings: DEFAULT_RUNTIME_SETTINGS,
    serverTag: TAG,
    cannotContinue: new Set<string>(),
  } as unknown as RuntimeContext;
  const warm = new WarmInstances(ctx, {
    exclusively: async (_, work) => work(),
    destroy: async (instance) => {
      await endNow;
      ended.push(instance);
    },
  });
  afterEach(() => warm.close());

  const keep = (generation: number, sandboxId = SANDBOX, checkpoint = CHECKPOINT) => {
    captured.set(sandboxId, checkpoint);
    return warm.keep({ sandboxId, generation }, checkpoint);
  };

  it('count once in the budget, however often they are kept and woken', async () => {
    await keep(1);
    const bytes = warmMemory.usedBytes;
    await keep(1);
    expect(warmMemory.usedBytes).toBe(bytes);

    // While another instance is being ended, this one is kept for its next checkpoint: the old entry must not end it.
    const slow = Promise.withResolvers<void>();
    endNow = slow.promise;
    await keep(1, 'sbx_b', CHECKPOINT);
    const discarding = warm.discard(CHECKPOINT);
    await keep(2, 'sbx_b', 'ckpt_b');
    slow.resolve();
    await discarding;
    expect(ended).toEqual([{ sandboxId: SANDBOX, generation: 1 }]);
    expect(warm.warmth('sbx_b', 'ckpt_b')).toEqual({ warm: true });
    expect(warmMemory.usedBytes).toBe(bytes);
  });
});
