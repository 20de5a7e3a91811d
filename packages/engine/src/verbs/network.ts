/** What a sandbox may reach, changed while it runs. A later start goes by what was written last. */
import { type Network, type SandboxId, TorporError } from '@torpor/protocol';
import { type Context, note, runtimeOf } from '../context.ts';
import { refusal } from '../lifecycle.ts';
import { getSandbox, lockSandbox, writeNetwork } from '../sandbox.ts';
import { within } from '../within.ts';

/** The row is written first: a change that could not be made to hold at once holds from the next start on. */
export async function setNetwork(ctx: Context, org: string, id: SandboxId, network: Network): Promise<void> {
  const runtime = runtimeOf(ctx, await getSandbox(ctx.db, id, org));
  const change = runtime.setNetwork?.bind(runtime);
  if (change === undefined) {
    throw new TorporError(
      'capability_unsupported',
      `The runtime "${runtime.name}" cannot restrict the network of a sandbox that runs.`,
      { sandboxId: id },
    );
  }
  const { generation } = await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    if (sandbox.state !== 'running') {
      throw new TorporError(refusal(sandbox.state), `The sandbox is ${sandbox.state}; it has no network.`, {
        sandboxId: id,
      });
    }
    const changed = await writeNetwork(tx, sandbox, network);
    return note(ctx, tx, changed, 'network.set', { network }, { operationId: null });
  });
  await within(ctx.clock, ctx.settings.callMs, 'Changing the network', (signal) =>
    change({ sandboxId: id, generation }, network, signal),
  );
}
