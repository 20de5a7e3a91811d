/** The declared services of a sandbox. The next start starts them; running processes are not touched. */
import { type SandboxId, type Service, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { applyTransition } from '../ledger/transition.ts';
import { decide } from '../lifecycle.ts';
import { lockSandbox, noSuchSandbox } from '../sandbox.ts';

/** Under the sandbox's lock, so that a concurrent start gets either all old services or all new services. */
export async function setServices(
  ctx: Context,
  org: string,
  id: SandboxId,
  services: readonly Service[],
): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    if (sandbox.org !== org) throw noSuchSandbox(id);
    const decision = decide(sandbox.state, 'set_services');
    if (decision.kind === 'refused') {
      throw new TorporError(decision.code, `The sandbox is ${sandbox.state}; its services cannot be set.`, {
        sandboxId: id,
      });
    }
    // A service that keeps its name stays the same job.
    const jobs = new Map(sandbox.config.services.map(({ name, jobId }) => [name, jobId]));
    const declared = services.map((one) => ({ ...one, jobId: jobs.get(one.name) ?? ctx.ids.next('job') }));
    const config = { ...sandbox.config, services: declared };
    const data = { services: services.map(({ name }) => name) };
    await applyTransition(ctx, tx, sandbox, 'set_services', 'services.set', data, {
      operationId: null,
      change: { config },
    });
  });
}
