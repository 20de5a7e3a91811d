/** The network policy of a sandbox: first written to the database, then applied by the runtime. */
import { forEachBounded } from '@torpor/host';
import type { Actor, Network, SandboxId, SandboxView } from '@torpor/protocol';
import { type Context, runtimeOf } from '../context.ts';
import { applyTransition } from '../ledger/transition.ts';
import { decide } from '../lifecycle.ts';
import { sandboxView } from '../queries/sandboxes.ts';
import { refusedBy } from '../refused-by.ts';
import { findSandbox, listSandboxes, lockSandbox, noSuchSandbox, type Sandbox } from '../sandbox.ts';
import { inPages } from '../upkeep/pages.ts';
import { withTimeout } from '../with-timeout.ts';
import { requireSecrets } from './required-secrets.ts';

/** A paused sandbox gets the policy with its next start. */
export async function setNetwork(
  ctx: Context,
  org: string,
  id: SandboxId,
  network: Network,
  by?: Actor,
): Promise<SandboxView> {
  await requireSecrets(ctx, org, network);
  const sandbox = await ctx.db.transaction(async (tx) => {
    const locked = await lockSandbox(tx, id);
    if (locked.org !== org) throw noSuchSandbox(id);
    const decision = decide(locked.state, 'set_network');
    if (decision.kind === 'refused') {
      throw refusedBy(locked, `The sandbox is ${locked.state}; its network cannot be set.`);
    }
    runtimeOf(ctx, locked).checkNetwork(network);
    const config = { ...locked.config, network };
    const extras = { operationId: null, by, change: { config } };
    return applyTransition(ctx, tx, locked, 'set_network', 'network.set', { network }, extras);
  });
  if (sandbox.state === 'running') await apply(ctx, sandbox);
  return sandboxView(ctx, org, id);
}

/** At the start of a server: an earlier server may have died between the write and its application. */
export async function applyNetworks(ctx: Context): Promise<void> {
  const running = inPages(
    (after, limit) => listSandboxes(ctx.db, { node: ctx.node.name, states: ['running'] }, after, limit),
    ctx.settings.pageSize,
    ctx.stopping,
  );
  await forEachBounded(running, ctx.settings.hands, async (sandbox) => {
    if (ctx.runtimes.get(sandbox.runtime)?.capabilities().isolated !== true) return;
    await apply(ctx, sandbox).catch((error: unknown) =>
      ctx.report('a network could not be set', { sandboxId: sandbox.id, error }),
    );
  });
}

async function apply(ctx: Context, { id, generation, config, runtime }: Sandbox): Promise<void> {
  const instance = { sandboxId: id, generation };
  try {
    await withTimeout(ctx.clock, ctx.settings.callMs, 'Setting the network', (signal) =>
      runtimeOf(ctx, { runtime }).setNetwork(instance, config.network, signal),
    );
  } catch (thrown) {
    // A sandbox that stopped running meanwhile gets the policy with its next start.
    const now = await findSandbox(ctx.db, id);
    if (now?.state === 'running' && now.generation === generation) throw thrown;
  }
}
