/** A service may start a daemon and exit. The service counts as running while something listens on its port. */
import { type Context, runtimeOf } from '../context.ts';
import type { Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import type { TrackedJob } from './job.ts';

export async function isServing(ctx: Context, sandbox: Sandbox, job: TrackedJob): Promise<boolean> {
  const port = sandbox.config.services.find(({ name }) => name === job.name)?.port;
  if (job.kind !== 'service' || port === undefined) return false;
  const instance = { sandboxId: sandbox.id, generation: sandbox.generation };
  const address = await withTimeout(ctx.clock, ctx.settings.observeMs, 'Finding the port', (signal) =>
    runtimeOf(ctx, sandbox).dial(instance, port, signal),
  );
  return address !== null;
}
