/**
 * Named places between two effects, at which a crash campaign kills the server. Outside of such a campaign passing
 * a place costs nothing.
 */
import type { OperationKind } from '@torpor/protocol';

/** In the order in which an operation passes them. */
const START = ['claimed', 'cleared', 'inspected', 'started', 'observed', 'committed'] as const;
const SEAL = ['claimed', 'closed', 'synced', 'frozen', 'cut', 'captured', 'sealed', 'committed'] as const;
/** A seal in place also thaws the sandbox. */
const THAWED = 'seal-thawed';
const KILL = ['claimed', 'destroyed', 'committed'] as const;

export type FaultPointName =
  | `start-${(typeof START)[number]}`
  | `seal-${(typeof SEAL)[number]}`
  | typeof THAWED
  | `kill-${(typeof KILL)[number]}`;

export type FaultPoint = `${OperationKind}.${FaultPointName}`;

const starting = START.map((name): FaultPointName => `start-${name}`);
const sealing = SEAL.map((name): FaultPointName => `seal-${name}`);
const killing = KILL.map((name): FaultPointName => `kill-${name}`);

/** The places that each kind of operation passes, by how a sandbox continues after a snapshot. */
function pointsWhere(goingOn: readonly FaultPointName[]): readonly FaultPoint[] {
  const places: Readonly<Record<OperationKind, readonly FaultPointName[]>> = {
    create: starting,
    pause: sealing,
    resume: starting,
    snapshot: [...sealing, ...goingOn],
    fork: [...sealing, ...goingOn],
    rollback: [...sealing, ...starting],
    recover: [],
    kill: killing,
  };
  return Object.entries(places).flatMap(([kind, each]) =>
    each.map((place): FaultPoint => `${kind as OperationKind}.${place}`),
  );
}

/** For runtimes that make snapshots in place. */
export const FAULT_POINTS = pointsWhere([THAWED]);
/** For runtimes on which a sandbox is started again from the checkpoint just sealed. */
export const FAULT_POINTS_BY_START = pointsWhere(starting);

export interface FaultPoints {
  /** Packages that build on the engine have places of their own. */
  pass(point: FaultPoint | `session.${string}` | `build.${string}`): Promise<void> | void;
}

export const noFaults: FaultPoints = { pass: () => {} };
