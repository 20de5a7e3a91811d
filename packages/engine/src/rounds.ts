/** The rounds that keep the database, the runtimes and the disk in agreement, and the order in which they start and stop. */
import type { SandboxId, SandboxView } from '@torpor/protocol';
import type { Context } from './context.ts';
import type { DiskState } from './disk/watch.ts';
import { Leases } from './idleness.ts';
import { drainRound } from './nodes/drain.ts';
import { fenceDeadNodes } from './nodes/fence.ts';
import { NodeFenced } from './nodes/membership.ts';
import { forgetExpiredKeys } from './operations/idempotency.ts';
import { EgressCounts } from './orgs/egress.ts';
import type { NodeDirectory } from './ports/nodes.ts';
import type { Runtime } from './ports/runtime.ts';
import { sandboxView } from './queries/sandboxes.ts';
import { expirePaused } from './retention/expire.ts';
import { getSandbox } from './sandbox.ts';
import { ensureTemplate, renewTemplate } from './templates/built-in.ts';
import { BUILT_IN } from './templates/template-names.ts';
import {
  type InspectionFilter,
  type InspectionResult,
  inspectCheckpoints,
} from './upkeep/checkpoint-inspection.ts';
import { collectCheckpoints, scrubCheckpoints } from './upkeep/collector.ts';
import { PeriodicCheckpoints } from './upkeep/periodic-checkpoints.ts';
import { compareSandbox, type ReconcileRound, reconcile } from './upkeep/reconciler.ts';
import { deleteDeadServers, deregisterServer, heartbeat, markDeadServers } from './upkeep/servers.ts';
import { Sweeper } from './upkeep/sweeper.ts';
import { applyNetworks } from './verbs/network.ts';

/** To read a whole checkpoint keeps the disk busy, so one round of scrubbing takes few. */
const SCRUBBED_PER_ROUND = 2;

export class Rounds {
  readonly leases: Leases;
  /** Where sandboxes live. */
  readonly directory: NodeDirectory;
  readonly #ctx: Context;
  readonly #sweeper: Sweeper;
  readonly #egress: EgressCounts;
  readonly #periodic: PeriodicCheckpoints;
  /** The templates that are being renewed, and whether to look at them again. */
  readonly #renewals = new Map<string, { again: boolean }>();
  readonly #stopping: AbortController;
  readonly #leaving = new AbortController();
  readonly #running: Promise<void>[] = [];
  #comparing: Promise<ReconcileRound> | undefined;
  #collecting: Promise<void> | undefined;
  #draining: Promise<boolean> | undefined;
  #evicting: Promise<void> | undefined;
  #askedProviders = Number.NEGATIVE_INFINITY;

  /** `stopping` is the controller of `ctx.stopping`. */
  constructor(ctx: Context, stopping: AbortController) {
    this.#ctx = ctx;
    this.#stopping = stopping;
    this.leases = new Leases(ctx);
    this.directory = ctx.directory;
    this.#sweeper = new Sweeper(ctx, this.leases);
    this.#egress = new EgressCounts(ctx);
    this.#periodic = new PeriodicCheckpoints(ctx);
  }

  /** Joins the database, repairs what a crash left behind, and begins the rounds. */
  async start(options: { readonly rounds: boolean } = { rounds: true }): Promise<ReconcileRound> {
    const ctx = this.#ctx;
    const { settings } = ctx;
    await ctx.replicator?.check();
    await ctx.node.join(ctx);
    await heartbeat(ctx);
    await markDeadServers(ctx);
    await this.checkDisk().catch((error: unknown) => ctx.report('looking at the disk failed', { error }));
    // Beats from the first moment to the last: other servers must not take over what this server still works on.
    if (options.rounds) {
      this.#every(settings.serverLeaseMs / 3, 'heartbeat', () => heartbeat(ctx), this.#leaving.signal);
      if (ctx.node.isClustered) {
        this.#every(
          settings.nodeLeaseMs / 3,
          'renewing the lease',
          () => this.renewLease(),
          this.#leaving.signal,
          settings.nodeLeaseMs / 30,
        );
        // Not after each renewal: what another node has locked must not delay the next one.
        this.#every(settings.nodeLeaseMs / 3, 'looking at the leases', () => this.fenceDeadNodes());
      }
    }
    await ctx.replicator?.start();
    await ctx.notifications.start(ctx.db);
    for (const runtime of ctx.runtimes.values()) {
      for (const name of BUILT_IN) await ensureTemplate(ctx, runtime, name);
    }
    const round = await this.reconcile();
    await applyNetworks(ctx);
    this.renewTemplates();
    if (options.rounds) {
      this.#every(settings.activityEveryMs / 2, 'activity', () => this.leases.flush());
      this.#every(settings.sweepEveryMs, 'sweep', () => this.sweep());
      this.#every(settings.sweepEveryMs, 'periodic checkpoints', () => this.checkpointRunning());
      if (ctx.node.isClustered) this.#every(settings.sweepEveryMs, 'drain', () => this.drainNode());
      this.#every(settings.reconcileEveryMs, 'reconcile', () => this.#compare());
      this.#every(settings.inspectEveryMs, 'looking at checkpoints', () => this.#inspect());
      this.#every(settings.activityEveryMs, 'egress', () => this.countEgress());
      this.#every(settings.retentionEveryMs, 'retention', () => expirePaused(ctx));
      this.#every(settings.diskEveryMs, 'looking at the disk', () => this.#tendDisk());
      this.#every(settings.collectEveryMs, 'collect', () => this.#collect());
      if (ctx.replicator !== undefined) {
        this.#every(ctx.storeSettings.everyMs, 'replication', () => this.replicate());
        this.#every(settings.diskEveryMs, 'keeping the bound of the cache', () => this.keepCacheBound());
      }
      this.#every(settings.reconcileEveryMs, 'scrub', () => scrubCheckpoints(ctx, SCRUBBED_PER_ROUND));
    }
    return round;
  }

  /** Renews the lease of the node. */
  renewLease(): Promise<void> {
    return this.#ctx.node.renew(this.#ctx);
  }

  /** Looks at the leases of the other nodes, and takes over from nodes whose lease has ended. */
  fenceDeadNodes(): Promise<void> {
    return fenceDeadNodes(this.#ctx);
  }

  /** Finishes what is under way and leaves running sandboxes running. */
  async stop(): Promise<void> {
    const ctx = this.#ctx;
    this.#stopping.abort();
    await Promise.all(this.#running);
    await ctx.operations.idle();
    await ctx.replicator?.idle();
    await ctx.background.idle();
    await this.countEgress().catch((error: unknown) => ctx.report('egress failed', { error }));
    this.#leaving.abort();
    // What runs on has a whole lease until the next server of this node.
    await ctx.node.renew(ctx).catch((error: unknown) => ctx.report('renewing the lease failed', { error }));
    // A node that was fenced can write nothing any more; its row is deleted by its next server.
    await deregisterServer(ctx).catch((thrown: unknown) => {
      if (!(thrown instanceof NodeFenced)) throw thrown;
    });
    await ctx.notifications.stop();
  }

  /** Prepares the built-in templates again that their runtime calls outdated. Returns at once. */
  renewTemplates(): void {
    const ctx = this.#ctx;
    for (const runtime of ctx.runtimes.values()) {
      for (const name of BUILT_IN) {
        ctx.background.run(`renewing template "${name}"`, () => this.#renewTemplate(runtime, name));
      }
    }
  }

  /** Never two at once for one template. A call during one makes it look again afterwards. */
  async #renewTemplate(runtime: Runtime, name: string): Promise<void> {
    const key = `${runtime.name} ${name}`;
    const running = this.#renewals.get(key);
    if (running !== undefined) {
      running.again = true;
      return;
    }
    const renewal = { again: true };
    this.#renewals.set(key, renewal);
    try {
      while (renewal.again && !this.#stopping.signal.aborted) {
        renewal.again = false;
        await renewTemplate(this.#ctx, runtime, name);
      }
    } finally {
      this.#renewals.delete(key);
    }
  }

  /** One whole round in which the database and the runtimes are made to agree. */
  async reconcile(): Promise<ReconcileRound> {
    const ctx = this.#ctx;
    const round = await this.#compare();
    await this.#collect();
    await ctx.db.transaction((tx) => forgetExpiredKeys(tx, ctx.clock.now()));
    await deleteDeadServers(ctx);
    return round;
  }

  /** Compares one sandbox with its runtime, for a caller that cannot wait for the round. */
  async compareOne(org: string, id: SandboxId): Promise<SandboxView> {
    const sandbox = await getSandbox(this.#ctx.db, id, org);
    if (sandbox.state === 'running') await compareSandbox(this.#ctx, sandbox);
    return sandboxView(this.#ctx, org, id);
  }

  /** One round of lifetimes and idleness. */
  sweep(): Promise<void> {
    return this.#sweeper.round();
  }

  /** Seals the running sandboxes that ask for it and are due. */
  checkpointRunning(): Promise<void> {
    return this.#periodic.round();
  }

  /** One round of a drain of this node; does nothing when it is not being drained. Returns whether anything is left. */
  drainNode(): Promise<boolean> {
    this.#draining ??= drainRound(this.#ctx).finally(() => {
      this.#draining = undefined;
    });
    return this.#draining;
  }

  /** Writes the traffic that the runtimes have counted since the last time. */
  countEgress(): Promise<void> {
    return this.#egress.write();
  }

  /** Checks the presence and sizes of checkpoints now, and records changes. */
  async inspectCheckpoints(
    filter: InspectionFilter = { external: true },
    signal: AbortSignal = this.#ctx.stopping,
  ): Promise<InspectionResult> {
    return inspectCheckpoints(this.#ctx, filter, AbortSignal.any([signal, this.#ctx.stopping]));
  }

  /** Begins to replicate checkpoints that wait for it, and deletes objects that nothing needs. */
  async replicate(): Promise<void> {
    await this.#ctx.replicator?.round();
  }

  /** Evicts checkpoints that the store has from the disk, when they take more than their bound. Never two at once. */
  keepCacheBound(): Promise<void> {
    this.#evicting ??= this.#ctx.cache.round(this.#ctx).finally(() => {
      this.#evicting = undefined;
    });
    return this.#evicting;
  }

  /** Measures the room on the disk now, and keeps the reserve. */
  checkDisk(): Promise<DiskState> {
    return this.#ctx.disk.check(this.#ctx);
  }

  /** Never two at once: they would meet in the same sandboxes. */
  #compare(): Promise<ReconcileRound> {
    this.#comparing ??= reconcile(this.#ctx).finally(() => {
      this.#comparing = undefined;
    });
    return this.#comparing;
  }

  /** Never two at once, for the same reason. */
  #collect(): Promise<void> {
    this.#collecting ??= collectCheckpoints(this.#ctx).finally(() => {
      this.#collecting = undefined;
    });
    return this.#collecting;
  }

  /** While room is short, deleted checkpoints are removed without waiting for the collector's own round. */
  async #tendDisk(): Promise<void> {
    const { level } = await this.checkDisk();
    if (level === 'refusing' || level === 'full') await this.#collect();
  }

  /** The round of inspections. Providers are asked less often, because each inspection is a request to them. */
  async #inspect(): Promise<void> {
    const { clock, settings } = this.#ctx;
    const external = clock.monotonic() - this.#askedProviders >= settings.inspectExternalEveryMs;
    if (external) this.#askedProviders = clock.monotonic();
    await this.inspectCheckpoints({ external, background: true });
  }

  /** `retryMs` is the pause after a failure. */
  #every(
    ms: number,
    what: string,
    work: () => Promise<unknown>,
    signal = this.#stopping.signal,
    retryMs = ms,
  ): void {
    const loop = async () => {
      let pause = ms;
      while (!signal.aborted) {
        await this.#ctx.clock.sleep(pause, signal).catch(() => {});
        if (signal.aborted) return;
        pause = ms;
        await work().catch((thrown: unknown) => {
          pause = retryMs;
          this.#ctx.report(`${what} failed`, { error: thrown });
        });
      }
    };
    const running = loop();
    if (signal === this.#stopping.signal) this.#running.push(running);
  }
}
