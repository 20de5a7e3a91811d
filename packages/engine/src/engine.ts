/**
 * The engine: the verbs that change sandboxes, the queries that read them, and the rounds that keep both true.
 * Start reading at `lifecycle.ts`, then `verbs/pause.ts`, `acts/seal.ts` and `acts/start.ts`; everything else
 * keeps those right when machines, networks and processes fail.
 */

import type { PauseDurability } from '@torpor/protocol';
import { Background } from './background.ts';
import { deleteCheckpoint } from './checkpoints/deletion.ts';
import { findKept, listKept, releaseCheckpoint } from './checkpoints/kept.ts';
import { RestoreHistory } from './checkpoints/start-timeouts.ts';
import type { Context } from './context.ts';
import { listDiskEvents } from './disk/events.ts';
import type { DiskReserve } from './disk/reserve.ts';
import { type DiskState, DiskWatch } from './disk/watch.ts';
import { Foreground } from './foreground.ts';
import { JobWatch } from './jobs/watch.ts';
import { readAudit } from './ledger/audit-entries.ts';
import { NotificationSubscription } from './ledger/notification-subscription.ts';
import { follow, newestPosition, readEvents, readEventsBackwards } from './ledger/read.ts';
import { Directory } from './nodes/directory.ts';
import { fencedDatabase } from './nodes/fenced-database.ts';
import { Membership } from './nodes/membership.ts';
import { beginDrain, cordonNode, forgetNode, uncordonNode } from './nodes/operator.ts';
import { Operations } from './operations/operations.ts';
import type { ClusterOptions } from './ports/nodes.ts';
import type { Replicas } from './ports/replicas.ts';
import { noTracing, type Tracing } from './ports/tracing.ts';
import { agent, dial, diskUsage } from './queries/addresses.ts';
import {
  builtInTemplate,
  runtimes,
  template,
  templateDefinition,
  templateLog,
  templates,
} from './queries/catalogue.ts';
import { checkpoint, checkpoints, namedCheckpoints, unhealthyCheckpoints } from './queries/checkpoints.ts';
import { allJobs, job, jobs } from './queries/jobs.ts';
import { node, nodes } from './queries/nodes.ts';
import { operation, operations } from './queries/operations.ts';
import { nodeDirectory, placeOf } from './queries/placement.ts';
import { replication } from './queries/replication.ts';
import { find, get, list, listByStart } from './queries/sandboxes.ts';
import { type CacheState, CheckpointCache } from './replication/cache.ts';
import { Replicator } from './replication/replicator.ts';
import { DEFAULT_STORE_SETTINGS, type StoreSettings } from './replication/settings.ts';
import { expirePaused } from './retention/expire.ts';
import { Rounds } from './rounds.ts';
import { setTemplatePhase } from './templates/built-in.ts';
import { deleteTemplate } from './templates/delete.ts';
import { TemplateLog } from './templates/template-log.ts';
import { audit } from './upkeep/audit.ts';
import { countUnhealthy, hasUsableCheckpoint } from './upkeep/checkpoint-inspection.ts';
import { EndedInstances } from './upkeep/ended-instances.ts';
import { NetworkRefusals } from './upkeep/network-refusals.ts';
import { heartbeat } from './upkeep/servers.ts';
import { create } from './verbs/create.ts';
import { fork } from './verbs/fork.ts';
import { compareJobs, trackProcess } from './verbs/jobs.ts';
import { kill } from './verbs/kill.ts';
import { setEnd, setLifetime } from './verbs/lifetime.ts';
import { nameCheckpoint } from './verbs/name-checkpoint.ts';
import { setNetwork } from './verbs/network.ts';
import { pause } from './verbs/pause.ts';
import { resume } from './verbs/resume.ts';
import { setRetention } from './verbs/retention.ts';
import { rollback } from './verbs/rollback.ts';
import { setServices } from './verbs/services.ts';
import { snapshot } from './verbs/snapshot.ts';
import {
  copyTemplate,
  nameTemplate,
  nameTemplates,
  prepareTemplate,
  publishTemplate,
  refuseTemplate,
} from './verbs/templates.ts';
import { verify } from './verbs/verify.ts';

/** Functions that take the context first. */
const VERBS = {
  create,
  pause,
  resume,
  rollback,
  snapshot,
  fork,
  kill,
  setEnd,
  setLifetime,
  setRetention,
  setNetwork,
  setServices,
  verify,
  nameCheckpoint,
  deleteCheckpoint,
  releaseCheckpoint,
  prepareTemplate,
  refuseTemplate,
  nameTemplate,
  nameTemplates,
  copyTemplate,
  publishTemplate,
  deleteTemplate,
  setTemplatePhase,
  trackProcess,
  compareJobs,
  expirePaused,
  heartbeat,
  cordonNode,
  uncordonNode,
  beginDrain,
  forgetNode,
};

const QUERIES = {
  get,
  find,
  list,
  listByStart,
  hasUsableCheckpoint,
  agent,
  dial,
  diskUsage,
  checkpoint,
  checkpoints,
  namedCheckpoints,
  unhealthyCheckpoints,
  operation,
  operations,
  job,
  jobs,
  allJobs,
  follow,
  runtimes,
  templates,
  template,
  templateDefinition,
  templateLog,
  builtInTemplate,
  disk,
  cache,
  audit,
  replication,
  nodes,
  node,
  nodeDirectory,
  placeOf,
};

/** Functions that take the database first. */
const DATABASE_QUERIES = {
  events: readEvents,
  eventsBackwards: readEventsBackwards,
  newest: newestPosition,
  auditEntries: readAudit,
  keptCheckpoints: listKept,
  keptCheckpoint: findKept,
  checkpointHealthCounts: countUnhealthy,
  diskEvents: listDiskEvents,
};

/** What the last measurement of the disk found; undefined before the first. */
function disk(ctx: Context): DiskState | undefined {
  return ctx.disk.state;
}

/** What the last look at the cache of the store found; undefined before the first, and without a store. */
function cache(ctx: Context): CacheState | undefined {
  return ctx.cache.state;
}

/** What the engine is given; it makes the rest of its context itself. */
export type EngineDependencies = Omit<
  Context,
  | 'background'
  | 'foreground'
  | 'operations'
  | 'restores'
  | 'templateLog'
  | 'stopping'
  | 'jobWatch'
  | 'disk'
  | 'endedInstances'
  | 'notifications'
  | 'tracing'
  | 'replicator'
  | 'cache'
  | 'storeSettings'
  | 'durability'
  | 'node'
  | 'directory'
> & {
  /** Absent: nothing is traced. */
  readonly tracing?: Tracing;
  /** Absent: no room is reserved for a full disk. */
  readonly reserve?: DiskReserve;
  /** Absent: there is no store outside this machine. */
  readonly replicas?: Replicas | undefined;
  readonly storeSettings?: StoreSettings;
  readonly durability?: PauseDurability;
  /** Absent: this server is alone on its database, or shares its data directory with the others. */
  readonly cluster?: ClusterOptions | undefined;
};

export type Engine = ReturnType<typeof createEngine>;

/** An engine that has not started yet: `start` joins the database. */
export function createEngine({
  reserve,
  tracing = noTracing,
  replicas,
  storeSettings = DEFAULT_STORE_SETTINGS,
  durability = 'sealed',
  cluster,
  ...given
}: EngineDependencies) {
  const stopping = new AbortController();
  const membership = new Membership(given.db, cluster);
  const parts = membership.isClustered ? { ...given, db: fencedDatabase(given.db, membership) } : given;
  const foreground = new Foreground(parts.clock);
  const notifications = new NotificationSubscription(parts.clock, parts.settings.noticeAtLeastEveryMs);
  const ctx: Context = {
    ...parts,
    tracing,
    node: membership,
    notifications,
    operations: new Operations({ ...parts, tracing, node: membership, foreground }, notifications),
    background: new Background(parts.report),
    foreground,
    restores: new RestoreHistory(parts.clock),
    templateLog: new TemplateLog(),
    stopping: stopping.signal,
    storeSettings,
    durability,
    // These work with the context that they are part of.
    replicator: replicas === undefined ? undefined : new Replicator(() => ctx, replicas),
    jobWatch: new JobWatch(() => ctx),
    endedInstances: new EndedInstances(() => ctx),
    disk: new DiskWatch(reserve),
    cache: new CheckpointCache(),
    directory: new Directory(() => ctx),
  };
  const refusals = new NetworkRefusals(ctx);
  for (const runtime of ctx.runtimes.values()) {
    runtime.onRefusal?.((instance, refusal) => refusals.add(instance, refusal));
    runtime.onEnded?.((instance) => ctx.endedInstances.onEnded(instance));
  }
  return Object.assign(
    new Rounds(ctx, stopping),
    bind(ctx, VERBS),
    bind(ctx, QUERIES),
    bind(ctx.db, DATABASE_QUERIES),
  );
}

/** Functions without their first parameter. */
type Bound<First, F> = {
  [K in keyof F]: F[K] extends (first: First, ...rest: infer Rest) => infer Result
    ? (...rest: Rest) => Result
    : never;
};

function bind<First, F extends Readonly<Record<string, (first: First, ...rest: never[]) => unknown>>>(
  first: First,
  functions: F,
): Bound<First, F> {
  const bound = Object.entries(functions).map(([name, call]) => [name, call.bind(null, first)]);
  return Object.fromEntries(bound) as Bound<First, F>;
}
