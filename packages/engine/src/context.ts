/** What every part of the engine works with: the ports, the settings, the shared services and this server's id. */
import { type Capabilities, type PauseDurability, TorporError } from '@torpor/protocol';
import type { Background } from './background.ts';
import type { RestoreHistory } from './checkpoints/start-timeouts.ts';
import type { DiskWatch } from './disk/watch.ts';
import type { FaultPoints } from './fault-points.ts';
import type { Foreground } from './foreground.ts';
import type { JobWatch } from './jobs/watch.ts';
import type { NotificationSubscription } from './ledger/notification-subscription.ts';
import type { Directory } from './nodes/directory.ts';
import type { Membership } from './nodes/membership.ts';
import type { Operations } from './operations/operations.ts';
import type { CheckpointStore } from './ports/checkpoint-store.ts';
import type { Clock } from './ports/clock.ts';
import type { Database } from './ports/database.ts';
import type { Ids } from './ports/ids.ts';
import type { Processes } from './ports/processes.ts';
import type { Runtime } from './ports/runtime.ts';
import type { SecretNames } from './ports/secrets.ts';
import type { Tracing } from './ports/tracing.ts';
import type { TrafficGate } from './ports/traffic-gate.ts';
import type { CheckpointCache } from './replication/cache.ts';
import type { Replicator } from './replication/replicator.ts';
import type { StoreSettings } from './replication/settings.ts';
import type { Settings } from './settings.ts';
import type { TemplateLog } from './templates/template-log.ts';
import type { EndedInstances } from './upkeep/ended-instances.ts';

/** Reports to the operator beside the ledger: for logs and metrics, never for decisions. */
export type Report = (what: string, facts: Readonly<Record<string, unknown>>) => void;

export interface Context {
  readonly db: Database;
  readonly store: CheckpointStore;
  readonly runtimes: ReadonlyMap<string, Runtime>;
  readonly defaultRuntime: string;
  readonly gate: TrafficGate;
  readonly clock: Clock;
  /** Absent: processes cannot be observed, and jobs only follow their sandbox. */
  readonly processes?: Processes | undefined;
  /** Absent: no sandbox can use secrets. */
  readonly secrets?: SecretNames | undefined;
  readonly jobWatch: JobWatch;
  readonly ids: Ids;
  readonly settings: Settings;
  readonly storeSettings: StoreSettings;
  readonly faults: FaultPoints;
  readonly report: Report;
  readonly tracing: Tracing;
  readonly background: Background;
  readonly foreground: Foreground;
  readonly operations: Operations;
  readonly notifications: NotificationSubscription;
  readonly endedInstances: EndedInstances;
  /** The last measurement of the disk. */
  readonly disk: DiskWatch;
  readonly restores: RestoreHistory;
  readonly templateLog: TemplateLog;
  /** Absent: checkpoints are kept on this machine only. */
  readonly replicator: Replicator | undefined;
  readonly cache: CheckpointCache;
  /** How durable a checkpoint is before a pause is answered, unless the caller says otherwise. */
  readonly durability: PauseDurability;
  /** This server as a node: `local` unless it is one of several. */
  readonly node: Membership;
  readonly directory: Directory;
  /** This server's id in the database; new with every start. */
  readonly serverId: string;
  /** True when this server holds the lock of the data directory: no other server works on the sandboxes of this node. */
  readonly ownsDataDirectory: boolean;
  /** The id of the data directory that holds the sandboxes and checkpoints. */
  readonly dataDirectoryId: string;
  /** Fires when the engine stops; rounds then end between two items. */
  readonly stopping: AbortSignal;
}

export function runtimeOf(ctx: Context, sandbox: { readonly runtime: string }): Runtime {
  const runtime = ctx.runtimes.get(sandbox.runtime);
  if (runtime === undefined) {
    throw new TorporError('capability_unsupported', `This server has no runtime "${sandbox.runtime}".`, {
      hint: `Configure it beside the others, as in --runtime ${[...ctx.runtimes.keys(), sandbox.runtime].join(',')}.`,
      details: { runtime: sandbox.runtime, configured: [...ctx.runtimes.keys()] },
    });
  }
  return runtime;
}

/** Whether every node reaches the instances of this runtime. False when this server does not have the runtime. */
export function isShared(ctx: Pick<Context, 'runtimes'>, runtime: string): boolean {
  return ctx.runtimes.get(runtime)?.isShared === true;
}

/** The most that a pause of this runtime keeps. Throws when the runtime cannot pause. */
export function pauseCapability(runtime: Runtime, what: string): Exclude<Capabilities['pause'], 'none'> {
  const { pause } = runtime.capabilities();
  if (pause === 'none') {
    throw new TorporError(
      'capability_unsupported',
      `The runtime "${runtime.name}" cannot pause a sandbox, so it cannot ${what}. Nothing was changed.`,
    );
  }
  return pause;
}
