/** Asks the runtime for the actual state of a sandbox. */
import { TorporError } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import type { Observation } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';

/** Never throws: a runtime that cannot be asked makes the observation `unknown`. */
export async function observe(ctx: Context, sandbox: Sandbox): Promise<Observation> {
  const instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  try {
    const runtime = runtimeOf(ctx, sandbox);
    return await withTimeout(ctx.clock, ctx.settings.observeMs, 'Observing', (signal) =>
      runtime.observe(instance, signal),
    );
  } catch (thrown) {
    return { is: 'unknown', why: TorporError.from(thrown).message };
  }
}
