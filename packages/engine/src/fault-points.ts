/**
 * Fault points: named places between two effects, at which a crash campaign kills the server. Outside of such a campaign
 * passing a fault point costs nothing.
 */
import type { OperationKind } from '@torpor/protocol';

/** In the order in which an operation passes them. */
const START = ['accepted', 'cleared', 'inspected', 'started', 'observed', 'committed'] as const;
const SEAL = [
  'accepted',
  'closed',
  'synced',
  'frozen',
  'aborted',
  'captured',
  'stored',
  'committed',
] as const;
/** A seal in place also thaws the sandbox. */
const THAWED = 'seal-thawed';
const KILL = ['accepted', 'destroyed', 'committed'] as const;

export type FaultPointName =
  | `start-${(typeof START)[number]}`
  | `seal-${(typeof SEAL)[number]}`
  | typeof THAWED
  | `kill-${(typeof KILL)[number]}`;

export type FaultPoint = `${OperationKind}.${FaultPointName}`;

const starting = START.map((name): FaultPointName => `start-${name}`);
const sealing = SEAL.map((name): FaultPointName => `seal-${name}`);
const killing = KILL.map((name): FaultPointName => `kill-${name}`);

/** The fault points that each kind of operation passes. `afterSnapshot` are those of a sandbox that continues. */
function pointsWhere(afterSnapshot: readonly FaultPointName[]): readonly FaultPoint[] {
  const names: Readonly<Record<OperationKind, readonly FaultPointName[]>> = {
    create: starting,
    pause: sealing,
    resume: starting,
    snapshot: [...sealing, ...afterSnapshot],
    fork: [...sealing, ...afterSnapshot],
    rollback: [...sealing, ...starting],
    recover: [],
    kill: killing,
  };
  return Object.entries(names).flatMap(([kind, each]) =>
    each.map((name): FaultPoint => `${kind as OperationKind}.${name}`),
  );
}

/** For runtimes that make snapshots in place. */
export const FAULT_POINTS = pointsWhere([THAWED]);
/** For runtimes on which a sandbox is started again from the checkpoint just sealed. */
export const FAULT_POINTS_BY_START = pointsWhere(starting);

export interface FaultPoints {
  /** Runtimes, and packages that build on the engine, have fault points of their own. */
  pass(
    point:
      | FaultPoint
      | `runtime.${string}`
      | `session.${string}`
      | `build.${string}`
      | `webhook.${string}`
      | `replication.${string}`,
  ): Promise<void> | void;
}

export const noFaults: FaultPoints = { pass: () => {} };
