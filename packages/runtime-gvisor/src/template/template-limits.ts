/** Keeps a template that is being made within what a sandbox may take: strangers' programs run in it already. */

import type { LayerId } from '@torpor/layers';
import { LayerWatch, roomOf } from '@torpor/layers';
import type { Resources } from '@torpor/protocol';
import { TorporError } from '@torpor/protocol';
import { passedLimit, REASONS } from '../limits/end-reason.ts';
import type { RuntimeContext } from '../runtime-context.ts';

const MIB = 1024 * 1024;
const LOOK_EVERY_MS = 500;

export interface Limited {
  /** Of its control group. */
  readonly name: string;
  readonly upper: LayerId;
  readonly limits: Resources;
}

/** `work` ends when its signal fires, and whoever asked for it is told which limit was passed. */
export async function withinLimits<T>(
  ctx: RuntimeContext,
  { name, upper, limits }: Limited,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const done = new AbortController();
  const giveUp = (why: string) =>
    over.abort(new TorporError('conflict', `The template cannot be made: ${why}.`, { details: { limits } }));
  const { layers, clock, place, report } = ctx;
  const disk = new LayerWatch({
    usage: (id, own) => layers.usage(id, own),
    room: () => roomOf(place),
    clock,
    passed: async () => giveUp(REASONS.disk(limits)),
    failed: (id, error) => report('the files of a template could not be measured', { layer: id, error }),
  });
  const look = async () => {
    while (!done.signal.aborted) {
      const why = await passedLimit(ctx, name, limits);
      if (why !== undefined) return giveUp(why);
      await clock.sleep(LOOK_EVERY_MS, done.signal).catch(() => {});
    }
  };
  if (limits.diskMb !== undefined) disk.watch(upper, limits.diskMb * MIB);
  const looking = look();
  try {
    return await work(AbortSignal.any([signal, over.signal]));
  } catch (thrown) {
    over.signal.throwIfAborted();
    throw thrown;
  } finally {
    done.abort();
    await Promise.all([looking, disk.stop()]);
  }
}
