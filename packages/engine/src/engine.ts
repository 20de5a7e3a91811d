/**
 * The engine: what a face may ask for, and the rounds that keep it true. Start reading at `lifecycle.ts`,
 * then `acts/seal.ts` and `acts/start.ts`; everything else exists to keep those two right when machines,
 * networks and processes fail.
 */
import type {
  CheckpointId,
  CheckpointView,
  CreateRequest,
  CreateTemplateRequest,
  DiskEvent,
  ErrorBody,
  EventView,
  ForkRequest,
  JobId,
  JobState,
  Network,
  OperationId,
  OperationView,
  PauseRequest,
  ResumeRequest,
  Retention,
  RollbackRequest,
  RuntimeView,
  SandboxId,
  SandboxState,
  SandboxView,
  Service,
  SnapshotRequest,
  TemplateView,
} from '@torpor/protocol';
import { type Page, pageOf, TorporError } from '@torpor/protocol';
import { hasUsableCheckpoint } from './acts/loss.ts';
import { observe } from './acts/observe.ts';
import { Background } from './background.ts';
import {
  type Checkpoint,
  findCheckpoint,
  findCheckpoints,
  getCheckpoint,
  listCheckpoints,
  namesOf,
} from './checkpoints/checkpoint.ts';
import { healthWord } from './checkpoints/health.ts';
import { findKept, type Kept, type KeptPage, letGo, listKept } from './checkpoints/kept.ts';
import { bytesOf, deleteCheckpoint } from './checkpoints/retention.ts';
import { verifyCheckpoint } from './checkpoints/soundness.ts';
import { Restores } from './checkpoints/start-timeouts.ts';
import { type Context, runtimeOf } from './context.ts';
import { listDiskEvents } from './disk/events.ts';
import type { DiskReserve } from './disk/reserve.ts';
import { type DiskState, DiskWatch } from './disk/watch.ts';
import { Leases } from './idleness.ts';
import { compareJobs } from './jobs/compare.ts';
import { allJobs, findJob, getJob, listJobs, type TrackedJob } from './jobs/job.ts';
import { type StartedProcess, trackProcess } from './jobs/track.ts';
import { JobWatch } from './jobs/watch.ts';
import { NotificationSubscription } from './ledger/notification-subscription.ts';
import { type Cursor, followEvents, newestPosition, readEvents } from './ledger/read.ts';
import { forgetExpiredKeys } from './operations/idempotency.ts';
import {
  findOpenOperation,
  findOperation,
  listOperations,
  type Operation,
  openOperationsOf,
  phasesOf,
} from './operations/operation.ts';
import { type Caller, Operations } from './operations/operations.ts';
import { EgressCounts } from './orgs/egress.ts';
import type { Address, AgentAddress, Instance, Runtime } from './ports/runtime.ts';
import { refusedBy } from './refused-by.ts';
import { expirePaused } from './retention/expire.ts';
import { type AppliedRetention, appliedTo, retentionOfOrgs } from './retention/policy.ts';
import {
  type Dialect,
  findSandbox,
  getSandbox,
  listByStart,
  listSandboxes,
  type Sandbox,
  type SandboxFilter,
  type StartedPage,
} from './sandbox.ts';
import { ensureTemplate, renewTemplate } from './templates/built-in.ts';
import { deleteTemplate } from './templates/delete.ts';
import { nameCheckpointAsTemplate } from './templates/name-checkpoint.ts';
import { type ArchiveTemplate, prepareTemplate, requireCustomTemplates } from './templates/prepare.ts';
import { getTemplate, listTemplates } from './templates/template.ts';
import { BUILT_IN, refuseTakenTemplateName } from './templates/template-names.ts';
import { audit, type Disagreement } from './upkeep/audit.ts';
import {
  countUnhealthy,
  type HealthCounts,
  type InspectionCounts,
  type InspectionFilter,
  inspectCheckpoints,
  listUnhealthy,
} from './upkeep/checkpoint-inspection.ts';
import { collectCheckpoints, scrubCheckpoints } from './upkeep/collector.ts';
import { EndedInstances } from './upkeep/ended-instances.ts';
import { NetworkRefusals } from './upkeep/network-refusals.ts';
import { compareSandbox, type ReconcileRound, reconcile } from './upkeep/reconciler.ts';
import {
  claimHome,
  deleteDeadServers,
  deregisterServer,
  heartbeat,
  markDeadServers,
} from './upkeep/servers.ts';
import { Sweeper } from './upkeep/sweeper.ts';
import { create } from './verbs/create.ts';
import { fork } from './verbs/fork.ts';
import { kill } from './verbs/kill.ts';
import { setEnd, setLifetime } from './verbs/lifetime.ts';
import { applyNetworks, setNetwork } from './verbs/network.ts';
import { pause } from './verbs/pause.ts';
import { resume, type StartResult } from './verbs/resume.ts';
import { setRetention } from './verbs/retention.ts';
import { rollback } from './verbs/rollback.ts';
import { setServices } from './verbs/services.ts';
import { snapshot } from './verbs/snapshot.ts';
import { viewCheckpoint, viewOperation, viewSandbox, viewTemplate } from './view.ts';
import { within } from './within.ts';

export interface FoundSandbox {
  readonly org: string;
  readonly dialect: Dialect;
  readonly sandbox: SandboxView;
}

/** For those who report what is wrong. */
interface UnhealthyCheckpoint {
  readonly id: CheckpointId;
  readonly sandboxId: SandboxId | null;
  readonly sandboxState: SandboxState | null;
  readonly health: ReturnType<typeof healthWord>;
  readonly detail: string | null;
}

function badCursor(id: string): TorporError {
  return new TorporError('invalid_request', `The cursor ${id} is not the nextCursor of a page of this list.`);
}

const KEPT: AppliedRetention = { keptForMs: 0, deletesAt: null };

/** Reading a checkpoint whole costs a disk's time; a round takes a few. */
const SCRUBBED_AT_ONCE = 2;

/** What the engine is given; everything else of its context it makes itself. */
export type EngineParts = Omit<
  Context,
  'background' | 'operations' | 'restores' | 'stopping' | 'jobWatch' | 'disk'
> & {
  /** Absent: nothing is kept for a full disk. */
  readonly reserve?: DiskReserve;
};

export class Engine {
  readonly leases: Leases;
  private readonly ctx: Context;
  private readonly notices: NotificationSubscription;
  private readonly sweeper: Sweeper;
  private readonly egress: EgressCounts;
  private readonly endings: EndedInstances;
  private readonly stopping = new AbortController();
  private readonly leaving = new AbortController();
  private comparing: Promise<ReconcileRound> | undefined;
  private collecting: Promise<void> | undefined;
  private askedProviders = Number.NEGATIVE_INFINITY;
  private rounds: Promise<void>[] = [];

  constructor(parts: EngineParts) {
    const { reserve, ...rest } = parts;
    this.notices = new NotificationSubscription(parts.clock, parts.settings.noticeAtLeastEveryMs);
    this.ctx = {
      ...rest,
      background: new Background(parts.report),
      operations: new Operations(parts, this.notices),
      restores: new Restores(parts.clock),
      stopping: this.stopping.signal,
      // The watch works with the context that it is part of.
      jobWatch: new JobWatch((): Context => this.ctx),
      disk: new DiskWatch(reserve),
    };
    this.leases = new Leases(this.ctx);
    this.sweeper = new Sweeper(this.ctx, this.leases);
    this.egress = new EgressCounts(this.ctx);
    const refusals = new NetworkRefusals(this.ctx);
    this.endings = new EndedInstances(this.ctx);
    for (const runtime of parts.runtimes.values()) {
      runtime.onRefusal?.((instance, refusal) => refusals.add(instance, refusal));
      runtime.onEnded?.((instance) => this.endings.onEnded(instance));
    }
  }

  /** Joins the database and makes true again whatever a crash left behind; then the rounds begin. */
  async start(options: { readonly rounds: boolean } = { rounds: true }): Promise<ReconcileRound> {
    const { ctx } = this;
    const { settings } = ctx;
    await claimHome(ctx);
    await heartbeat(ctx);
    await markDeadServers(ctx);
    await this.lookAtDisk().catch((error: unknown) => ctx.report('looking at the disk failed', { error }));
    // From the first moment to the last: as long as it works on something, others must know.
    if (options.rounds)
      this.every(settings.serverLeaseMs / 3, 'heartbeat', () => heartbeat(ctx), this.leaving.signal);
    await this.notices.start(ctx.db);
    for (const runtime of ctx.runtimes.values()) {
      for (const name of BUILT_IN) await ensureTemplate(ctx, runtime, name);
    }
    const round = await this.reconcile();
    await applyNetworks(ctx);
    this.renewTemplates();
    if (options.rounds) {
      this.every(settings.activityEveryMs / 2, 'activity', () => this.leases.flush());
      this.every(settings.sweepEveryMs, 'sweep', () => this.sweeper.round());
      this.every(settings.reconcileEveryMs, 'reconcile', () => this.compare());
      this.every(settings.inspectEveryMs, 'looking at checkpoints', () => this.lookAgain());
      this.every(settings.activityEveryMs, 'egress', () => this.countEgress());
      this.every(settings.retentionEveryMs, 'retention', () => this.expirePaused());
      this.every(settings.diskEveryMs, 'looking at the disk', () => this.tendDisk());
      this.every(settings.collectEveryMs, 'collect', () => this.collect());
      this.every(settings.reconcileEveryMs, 'scrub', () => scrubCheckpoints(ctx, SCRUBBED_AT_ONCE));
    }
    return round;
  }

  /** Prepares built-in templates again that their runtime calls outdated. Returns at once. */
  renewTemplates(): void {
    for (const runtime of this.ctx.runtimes.values()) {
      for (const name of BUILT_IN) {
        this.ctx.background.run(`renewing template "${name}"`, () => renewTemplate(this.ctx, runtime, name));
      }
    }
  }

  /** Finishes what is under way and leaves running sandboxes running. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.all(this.rounds);
    await this.ctx.operations.idle();
    await this.ctx.background.idle();
    await this.countEgress().catch((error: unknown) => this.ctx.report('egress failed', { error }));
    this.leaving.abort();
    await deregisterServer(this.ctx);
    await this.notices.stop();
  }

  async create(caller: Caller, request: CreateRequest): Promise<SandboxView> {
    const { sandboxId } = await create(this.ctx, caller, request);
    return this.view(sandboxId, caller.org);
  }

  async pause(caller: Caller, id: SandboxId, request: PauseRequest = {}) {
    const { checkpointId, operation, isNew } = await pause(this.ctx, caller, id, request);
    return {
      /** False when it was paused before. */
      paused: isNew,
      sandbox: await this.view(id, caller.org),
      checkpoint: await this.checkpoint(caller.org, checkpointId),
      operation: operation === null ? null : await this.viewOperation(operation),
    };
  }

  async resume(caller: Caller, id: SandboxId, request: ResumeRequest = {}) {
    // Whoever wants to wake a sandbox may be the first to hear that its processes have ended.
    await this.look(caller.org, id);
    const { operation, ...start } = await resume(this.ctx, caller, id, request);
    return { ...(await this.started(caller.org, id, start)), resumed: operation !== null };
  }

  async rollback(caller: Caller, id: SandboxId, request: RollbackRequest) {
    return this.started(caller.org, id, await rollback(this.ctx, caller, id, request));
  }

  async snapshot(caller: Caller, id: SandboxId, request: SnapshotRequest = {}): Promise<CheckpointView> {
    const { checkpointId } = await snapshot(this.ctx, caller, id, request);
    return this.checkpoint(caller.org, checkpointId);
  }

  async fork(
    caller: Caller,
    id: SandboxId,
    request: ForkRequest = {},
  ): Promise<({ sandbox: SandboxView } | { error: ErrorBody })[]> {
    const { forks } = await fork(this.ctx, caller, id, request);
    return Promise.all(
      forks.map(async (one) =>
        'error' in one
          ? { error: one.error.toBody() }
          : { sandbox: await this.view(one.sandboxId, caller.org) },
      ),
    );
  }

  async kill(caller: Caller, id: SandboxId): Promise<SandboxView> {
    await kill(this.ctx, caller, id);
    return this.view(id, caller.org);
  }

  /** When the present run ends; how long later ones may take stays as it is. */
  async setEnd(org: string, id: SandboxId, seconds: number, how: 'exactly' | 'at least'): Promise<void> {
    await setEnd(this.ctx, org, id, seconds, how);
  }

  async setLifetime(org: string, id: SandboxId, timeoutSeconds: number | null): Promise<SandboxView> {
    await setLifetime(this.ctx, org, id, timeoutSeconds);
    return this.view(id, org);
  }

  /** How long the sandbox is kept while it is paused and nobody uses it. */
  async setRetention(org: string, id: SandboxId, deletePausedAfterSeconds: Retention): Promise<SandboxView> {
    await setRetention(this.ctx, org, id, deletePausedAfterSeconds);
    return this.view(id, org);
  }

  async setNetwork(org: string, id: SandboxId, network: Network): Promise<SandboxView> {
    await setNetwork(this.ctx, org, id, network);
    return this.view(id, org);
  }

  /** What the next start of the sandbox starts with it; what runs now stays as it is. */
  async setServices(org: string, id: SandboxId, services: readonly Service[]): Promise<void> {
    await setServices(this.ctx, org, id, services);
  }

  /** A running sandbox is looked at while the caller waits, within a short bound. */
  async get(org: string, id: SandboxId): Promise<SandboxView> {
    const seen = await this.look(org, id);
    const view = await this.view(id, org);
    // It may have become something else while we looked; then what was seen says nothing about it.
    const same = view.state === 'running' && view.generation === seen?.generation;
    return same ? { ...view, evidence: seen.found.is, observedAt: this.ctx.clock.now() } : view;
  }

  async list(filter: SandboxFilter, cursor: string, limit: number): Promise<Page<SandboxView>> {
    const found = await listSandboxes(this.ctx.db, filter, cursor, limit + 1);
    const { items, nextCursor } = pageOf(found, limit, ({ id }) => id);
    return { items: await this.viewAll(items), nextCursor };
  }

  /** One page in the order of starts. */
  async listByStart(filter: SandboxFilter, page: StartedPage): Promise<SandboxView[]> {
    return this.viewAll(await listByStart(this.ctx.db, filter, page));
  }

  /** Checkpoints that were asked for as such, newest first, each with the templates that are made from it. */
  async keptCheckpoints(org: string, page: KeptPage): Promise<Kept[]> {
    return listKept(this.ctx.db, org, page);
  }

  async keptCheckpoint(org: string, id: CheckpointId): Promise<Kept | undefined> {
    return findKept(this.ctx.db, org, id);
  }

  /** Ends its names and its being kept: whoever stands on it goes on, nobody new can start from it. */
  async letGoOfCheckpoint(org: string, id: CheckpointId): Promise<boolean> {
    return letGo(this.ctx, org, id);
  }

  async checkpoint(org: string, id: CheckpointId): Promise<CheckpointView> {
    return this.viewCheckpoint(await getCheckpoint(this.ctx.db, id, org));
  }

  async checkpoints(org: string, id: SandboxId, limit: number, before: CheckpointId | null = null) {
    await getSandbox(this.ctx.db, id, org);
    const last = before === null ? undefined : await findCheckpoint(this.ctx.db, before);
    if (before !== null && last?.sandboxId !== id) throw badCursor(before);
    const found = await listCheckpoints(this.ctx.db, id, last?.seq ?? null, limit + 1);
    const { items, nextCursor } = pageOf(found, limit, (checkpoint) => checkpoint.id);
    return {
      items: await Promise.all(items.map((checkpoint) => this.viewCheckpoint(checkpoint))),
      nextCursor,
      bytes: await bytesOf(this.ctx.db, id),
    };
  }

  async verify(org: string, id: CheckpointId): Promise<CheckpointView> {
    await verifyCheckpoint(this.ctx, await getCheckpoint(this.ctx.db, id, org));
    return this.checkpoint(org, id);
  }

  async deleteCheckpoint(org: string, id: CheckpointId): Promise<void> {
    await deleteCheckpoint(this.ctx, org, id);
  }

  async operation(org: string, id: OperationId): Promise<OperationView> {
    const operation = await findOperation(this.ctx.db, id);
    if (operation === undefined || operation.org !== org) {
      throw new TorporError('not_found', `There is no operation ${id}.`, { operationId: id });
    }
    return this.viewOperation(operation);
  }

  /** Newest first. */
  async operations(
    org: string,
    sandboxId: SandboxId | undefined,
    before: OperationId | undefined,
    limit: number,
  ): Promise<Page<OperationView>> {
    const last = before === undefined ? undefined : await findOperation(this.ctx.db, before);
    if (before !== undefined && last?.org !== org) throw badCursor(before);
    const found = await listOperations(this.ctx.db, org, sandboxId, last, limit + 1);
    const { items, nextCursor } = pageOf(found, limit, ({ id }) => id);
    return { items: await Promise.all(items.map((operation) => this.viewOperation(operation))), nextCursor };
  }

  async events(cursor: Cursor, limit: number): Promise<EventView[]> {
    return readEvents(this.ctx.db, cursor, limit);
  }

  /** The `seq` or `position` of the last event that there is where the cursor leads; 0 before the first. */
  async newest(cursor: Cursor): Promise<number> {
    return newestPosition(this.ctx.db, cursor);
  }

  follow(cursor: Cursor, signal: AbortSignal): AsyncGenerator<EventView> {
    return followEvents(this.ctx.db, this.notices, cursor, AbortSignal.any([signal, this.stopping.signal]));
  }

  /** A sandbox by its id alone, as the ledger has it: for those who do not come with a key of its organisation. */
  async find(id: SandboxId): Promise<FoundSandbox | undefined> {
    const found = await findSandbox(this.ctx.db, id);
    if (found === undefined) return undefined;
    const { org, config } = found;
    // Whoever asks this way wants to reach the sandbox, in which health and retention have no part.
    return { org, dialect: config.dialect ?? 'native', sandbox: viewSandbox(found, null, undefined, KEPT) };
  }

  /** Makes a process that was started in the background of a running sandbox a job. */
  async trackProcess(org: string, process: StartedProcess): Promise<TrackedJob> {
    const job = await trackProcess(this.ctx, org, process);
    this.ctx.jobWatch.begin(process.sandboxId);
    return job;
  }

  async job(org: string, id: JobId): Promise<TrackedJob> {
    return getJob(this.ctx.db, id, org);
  }

  /** Newest first. Without states: in whichever state they are. */
  async jobs(
    org: string,
    id: SandboxId,
    states: readonly JobState[],
    before: JobId | undefined,
    limit: number,
  ): Promise<Page<TrackedJob>> {
    await getSandbox(this.ctx.db, id, org);
    const last = before === undefined ? undefined : await findJob(this.ctx.db, before);
    if (before !== undefined && last?.sandboxId !== id) throw badCursor(before);
    const items = await listJobs(this.ctx.db, id, states, last, limit);
    return { items, nextCursor: items.length < limit ? null : (items.at(-1)?.id ?? null) };
  }

  /** All that are kept, oldest first. */
  async allJobs(org: string, id: SandboxId): Promise<TrackedJob[]> {
    await getSandbox(this.ctx.db, id, org);
    return allJobs(this.ctx.db, id);
  }

  /** Asks the agent of a running sandbox which of its jobs have ended, and writes down what it says. */
  async compareJobs(org: string, id: SandboxId): Promise<void> {
    const sandbox = await getSandbox(this.ctx.db, id, org);
    if (sandbox.state === 'running') await compareJobs(this.ctx, sandbox);
  }

  /** How to talk to the agent of a running sandbox; the caller holds a lease for as long as it does. */
  async agent(org: string, id: SandboxId): Promise<AgentAddress> {
    return this.withRunning(org, id, 'Finding the agent', (runtime, instance, signal) =>
      runtime.agent(instance, signal),
    );
  }

  /** Where a port of a running sandbox can be dialled, or null when nothing of the sandbox listens there. */
  async dial(org: string, id: SandboxId, port: number): Promise<Address | null> {
    return this.withRunning(org, id, 'Finding the port', (runtime, instance, signal) =>
      runtime.dial(instance, port, signal),
    );
  }

  runtimes(): RuntimeView[] {
    return [...this.ctx.runtimes.values()].map((runtime) => ({
      name: runtime.name,
      default: runtime.name === this.ctx.defaultRuntime,
      capabilities: runtime.capabilities(),
    }));
  }

  async templates(org: string): Promise<TemplateView[]> {
    return (await listTemplates(this.ctx.db, org)).map(viewTemplate);
  }

  async template(org: string, name: string): Promise<TemplateView> {
    return viewTemplate(await getTemplate(this.ctx, org, name));
  }

  /** Throws what a template would be refused with whatever its archive holds: for those who have yet to send it. */
  async refuseTemplate(
    org: string,
    { name, runtime }: Pick<ArchiveTemplate, 'name' | 'runtime'>,
  ): Promise<void> {
    requireCustomTemplates(this.ctx, runtime);
    await refuseTakenTemplateName(this.ctx.db, org, name);
  }

  async prepareTemplate(caller: Caller, request: ArchiveTemplate): Promise<TemplateView> {
    return viewTemplate(await prepareTemplate(this.ctx, caller, request));
  }

  async nameTemplate(
    org: string,
    request: CreateTemplateRequest,
    taken: 'refuse' | 'replace' = 'refuse',
  ): Promise<TemplateView> {
    return viewTemplate(await nameCheckpointAsTemplate(this.ctx, org, request, taken));
  }

  async deleteTemplate(org: string, name: string): Promise<void> {
    await deleteTemplate(this.ctx, org, name);
  }

  /** One whole round of making what is so and what is written agree. */
  async reconcile(): Promise<ReconcileRound> {
    const { ctx } = this;
    const round = await this.compare();
    await this.collect();
    await ctx.db.transaction((tx) => forgetExpiredKeys(tx, ctx.clock.now()));
    await deleteDeadServers(ctx);
    return round;
  }

  /** Looks at the presence and sizes of checkpoints now, and records what is news. */
  async lookAtCheckpoints(
    filter: InspectionFilter = { external: true },
    signal: AbortSignal = this.stopping.signal,
  ): Promise<InspectionCounts> {
    return inspectCheckpoints(this.ctx, filter, AbortSignal.any([signal, this.stopping.signal]));
  }

  /** One page of an organisation's checkpoints that are not well, as the last look found them. */
  async unhealthyCheckpoints(org: string, after: string, limit: number): Promise<UnhealthyCheckpoint[]> {
    const found = await listUnhealthy(this.ctx.db, org, after, limit);
    return found.map(
      ({ checkpoint: { id, sandboxId, faults, health, healthDetail: detail }, sandboxState }) => ({
        id,
        sandboxId,
        sandboxState,
        health: healthWord({ faults, health }),
        detail,
      }),
    );
  }

  /** How many checkpoints are not well, over all organisations. */
  async checkpointHealthCounts(): Promise<HealthCounts> {
    return countUnhealthy(this.ctx.db);
  }

  /** The same for one sandbox, for whoever cannot wait for the round. */
  async compareOne(org: string, id: SandboxId): Promise<SandboxView> {
    const sandbox = await getSandbox(this.ctx.db, id, org);
    if (sandbox.state === 'running') await compareSandbox(this.ctx, sandbox);
    return this.view(id, org);
  }

  /** Whether anything of its own is left that the sandbox could be started from. Doubt counts as yes. */
  async isStartable(org: string, id: SandboxId): Promise<boolean> {
    return hasUsableCheckpoint(this.ctx, await getSandbox(this.ctx.db, id, org));
  }

  /** Everything that the ledger and the rows do not agree on; nothing, unless something is badly wrong. */
  audit(): AsyncGenerator<Disagreement> {
    return audit(this.ctx);
  }

  /** One round of lifetimes and idleness. */
  sweep(): Promise<void> {
    return this.sweeper.round();
  }

  /** Writes down the traffic that runtimes have counted since the last time. */
  countEgress(): Promise<void> {
    return this.egress.write();
  }

  /** One round of announcing and deleting sandboxes that were paused for longer than their policy allows. */
  expirePaused(): Promise<void> {
    return expirePaused(this.ctx);
  }

  /** Looks at the room on the disk now, and keeps the reserve. */
  lookAtDisk(): Promise<DiskState> {
    return this.ctx.disk.check(this.ctx);
  }

  /** What the last look found; undefined before the first. */
  disk(): DiskState | undefined {
    return this.ctx.disk.state;
  }

  /** The last changes of its level, newest first. */
  diskEvents(): Promise<DiskEvent[]> {
    return listDiskEvents(this.ctx.db);
  }

  heartbeat(): Promise<void> {
    return heartbeat(this.ctx);
  }

  private async withRunning<T>(
    org: string,
    id: SandboxId,
    what: string,
    work: (runtime: Runtime, instance: Instance, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const sandbox = await getSandbox(this.ctx.db, id, org);
    if (sandbox.state !== 'running') {
      throw refusedBy(sandbox, `The sandbox is ${sandbox.state}.`);
    }
    const instance = { sandboxId: id, generation: sandbox.generation };
    const runtime = runtimeOf(this.ctx, sandbox);
    try {
      const found = await within(this.ctx.clock, this.ctx.settings.observeMs, what, (signal) =>
        work(runtime, instance, signal),
      );
      if (found === null) await this.throwIfEnded(sandbox);
      return found;
    } catch (thrown) {
      if (thrown instanceof TorporError && thrown.code === 'unreachable') await this.throwIfEnded(sandbox);
      throw thrown;
    }
  }

  /** Looks at a running sandbox; one that has ended is repaired before anybody is answered. */
  private async look(org: string, id: SandboxId) {
    const sandbox = await getSandbox(this.ctx.db, id, org);
    if (sandbox.state !== 'running') return undefined;
    const found = await observe(this.ctx, sandbox);
    if (found.is === 'gone') await this.endings.waitForRepair(sandbox);
    return { found, generation: sandbox.generation };
  }

  /** For a call that met nothing: whether that is because the sandbox has ended. */
  private async throwIfEnded({ org, id }: Sandbox): Promise<void> {
    const seen = await this.look(org, id);
    if (seen?.found.is !== 'gone') return;
    const now = await getSandbox(this.ctx.db, id, org);
    if (now.state !== 'running') throw refusedBy(now, `The sandbox is ${now.state}.`);
  }

  private async view(id: SandboxId, org: string): Promise<SandboxView> {
    const sandbox = await getSandbox(this.ctx.db, id, org);
    const open = await findOpenOperation(this.ctx.db, id);
    const { checkpointId } = sandbox;
    const checkpoint = checkpointId === null ? undefined : await findCheckpoint(this.ctx.db, checkpointId);
    const ofOrg = await retentionOfOrgs(this.ctx.db, [org], this.ctx.settings.deletePausedAfterMs);
    return viewSandbox(sandbox, open ?? null, checkpoint, appliedTo(this.ctx, sandbox, ofOrg));
  }

  private async viewAll(sandboxes: readonly Sandbox[]): Promise<SandboxView[]> {
    const ids = sandboxes.map(({ id }) => id);
    const open = await openOperationsOf(this.ctx.db, ids);
    const attached = sandboxes.flatMap(({ checkpointId }) => checkpointId ?? []);
    const checkpoints = await findCheckpoints(this.ctx.db, attached);
    const orgs = [...new Set(sandboxes.map(({ org }) => org))];
    const ofOrg = await retentionOfOrgs(this.ctx.db, orgs, this.ctx.settings.deletePausedAfterMs);
    return sandboxes.map((sandbox) => {
      const { id, checkpointId } = sandbox;
      const checkpoint = checkpointId === null ? undefined : checkpoints.get(checkpointId);
      return viewSandbox(sandbox, open.get(id) ?? null, checkpoint, appliedTo(this.ctx, sandbox, ofOrg));
    });
  }

  /** Never twice at once: the second would only run into the first. */
  private compare(): Promise<ReconcileRound> {
    this.comparing ??= reconcile(this.ctx).finally(() => {
      this.comparing = undefined;
    });
    return this.comparing;
  }

  /** Never twice at once, for the same reason. */
  private collect(): Promise<void> {
    this.collecting ??= collectCheckpoints(this.ctx).finally(() => {
      this.collecting = undefined;
    });
    return this.collecting;
  }

  /** While room is short, what was given up is removed without waiting for the collector's own round. */
  private async tendDisk(): Promise<void> {
    const { level } = await this.lookAtDisk();
    if (level === 'refusing' || level === 'full') await this.collect();
  }

  /** The round of looks; providers are asked less often, since each look is a request to them. */
  private async lookAgain(): Promise<void> {
    const { clock, settings } = this.ctx;
    const external = clock.monotonic() - this.askedProviders >= settings.inspectExternalEveryMs;
    if (external) this.askedProviders = clock.monotonic();
    await this.lookAtCheckpoints({ external, background: true });
  }

  private async viewOperation(operation: Operation): Promise<OperationView> {
    return viewOperation(operation, await phasesOf(this.ctx.db, operation));
  }

  private async viewCheckpoint(checkpoint: Checkpoint): Promise<CheckpointView> {
    return viewCheckpoint(checkpoint, await namesOf(this.ctx.db, checkpoint.id));
  }

  private async started(org: string, id: SandboxId, { source, lost, skipped }: StartResult) {
    return { sandbox: await this.view(id, org), source, lost: [...lost], skipped: [...skipped] };
  }

  private every(ms: number, what: string, work: () => Promise<unknown>, signal = this.stopping.signal): void {
    const loop = async () => {
      while (!signal.aborted) {
        await this.ctx.clock.sleep(ms, signal).catch(() => {});
        if (signal.aborted) return;
        await work().catch((thrown: unknown) => this.ctx.report(`${what} failed`, { error: thrown }));
      }
    };
    const running = loop();
    if (signal === this.stopping.signal) this.rounds.push(running);
  }
}
