export type { Report } from './context.ts';
export { DiskReserve } from './disk/reserve.ts';
export type { DiskState } from './disk/watch.ts';
export { createEngine, type Engine, type EngineDependencies } from './engine.ts';
export {
  FAULT_POINTS,
  FAULT_POINTS_BY_START,
  type FaultPoint,
  type FaultPoints,
  noFaults,
} from './fault-points.ts';
export { type TrackedJob, viewJob } from './jobs/job.ts';
export { NotificationSubscription } from './ledger/notification-subscription.ts';
export type { BackwardCursor, Cursor } from './ledger/read.ts';
export type { Caller } from './operations/operations.ts';
export {
  findOrg,
  insertOrg,
  listOrgs,
  lockOrg,
  markOrgDeleted,
  runningBuildQuotas,
  updateOrgRetention,
  updateQuotas,
} from './orgs/org.ts';
export { quotaExceeded } from './orgs/quota.ts';
export { countBuilds, quotaUsage } from './orgs/quota-usage.ts';
export { type OrgTotals, totalsOfOrgs, usageOf } from './orgs/usage.ts';
export * from './ports/checkpoint-store.ts';
export * from './ports/clock.ts';
export * from './ports/database.ts';
export * from './ports/ids.ts';
export * from './ports/image.ts';
export * from './ports/nodes.ts';
export * from './ports/processes.ts';
export * from './ports/replicas.ts';
export * from './ports/runtime.ts';
export * from './ports/secrets.ts';
export * from './ports/tracing.ts';
export * from './ports/traffic-gate.ts';
export { enqueue } from './queue/enqueue.ts';
export { type Job, LeaseLost } from './queue/job.ts';
export { expireLeases, type LeasedJob, requireLease, withdraw } from './queue/lease.ts';
export { startWorker, type Worker } from './queue/worker.ts';
export { STORE_SETTING_ORDER, STORE_SETTINGS, type StoreSettings } from './replication/settings.ts';
export { DEFAULT_SETTINGS, ENGINE_SETTING_ORDER, ENGINE_SETTINGS, type Settings } from './settings.ts';
export { BUILT_IN } from './templates/template-names.ts';
export { inPages } from './upkeep/pages.ts';
export type { ReconcileRound } from './upkeep/reconciler.ts';
export { withTimeout } from './with-timeout.ts';
