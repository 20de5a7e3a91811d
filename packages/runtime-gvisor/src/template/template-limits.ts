/** Limits a template while it is prepared: programs of its author run in it already. */

import type { LayerId } from '@torpor/layers';
import { freeSpaceOf, LayerWatch } from '@torpor/layers';
import type { Resources } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import { exceededLimit, REASONS } from '../limits/end-reason.ts';
import type { RuntimeContext } from '../runtime-context.ts';

const MIB = 1024 * 1024;
const CHECK_EVERY_MS = 500;

export interface Limited {
  /** Of the control group. */
  readonly name: string;
  readonly upper: LayerId;
  readonly limits: Resources;
}

/** Aborts `work` when a limit is exceeded, and then throws an error that names the limit. */
export async function withinLimits<T>(
  ctx: RuntimeContext,
  { name, upper, limits }: Limited,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const exceeded = new AbortController();
  const done = new AbortController();
  const abort = (why: string) =>
    exceeded.abort(
      new TorporError('conflict', `The template cannot be made: ${why}.`, { details: { limits } }),
    );
  const { layers, clock, directory, report } = ctx;
  const disk = new LayerWatch({
    usage: (id, own) => layers.usage(id, own),
    room: () => freeSpaceOf(directory),
    clock,
    passed: async () => abort(REASONS.disk(limits)),
    failed: (id, error) => report('the files of a template could not be measured', { layer: id, error }),
  });
  const checkCgroup = async () => {
    while (!done.signal.aborted) {
      const why = await exceededLimit(ctx, name, limits);
      if (why !== undefined) return abort(why);
      await clock.sleep(CHECK_EVERY_MS, done.signal).catch(() => {});
    }
  };
  if (limits.diskMb !== undefined) disk.watch(upper, limits.diskMb * MIB);
  const checking = checkCgroup();
  try {
    return await work(AbortSignal.any([signal, exceeded.signal]));
  } catch (thrown) {
    exceeded.signal.throwIfAborted();
    throw thrown;
  } finally {
    done.abort();
    await Promise.all([checking, disk.stop()]);
  }
}
