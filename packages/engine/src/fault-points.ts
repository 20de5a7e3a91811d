/**
 * Named places between two effects, where a crash campaign kills the server for real.
 * Outside of such a campaign passing one costs nothing.
 */
import type { OperationKind } from '@torpor/protocol';

/** In the order in which an operation passes them. */
const START = ['claimed', 'cleared', 'inspected', 'started', 'observed', 'committed'] as const;
const SEAL = ['claimed', 'closed', 'synced', 'frozen', 'cut', 'captured', 'sealed', 'committed'] as const;
/** A seal in place also lets the sandbox go on. */
const THAWED = 'seal-thawed';
const KILL = ['claimed', 'destroyed', 'committed'] as const;

export type Place =
  | `start-${(typeof START)[number]}`
  | `seal-${(typeof SEAL)[number]}`
  | typeof THAWED
  | `kill-${(typeof KILL)[number]}`;

export type FaultPoint = `${OperationKind}.${Place}`;

const starting = START.map((name): Place => `start-${name}`);
const sealing = SEAL.map((name): Place => `seal-${name}`);
const killing = KILL.map((name): Place => `kill-${name}`);

/** What each kind of operation passes, where snapshots are made in place. */
const PLACES: Readonly<Record<OperationKind, readonly Place[]>> = {
  create: starting,
  pause: sealing,
  resume: starting,
  snapshot: [...sealing, THAWED],
  fork: [...sealing, THAWED],
  rollback: [...sealing, ...starting],
  recover: [],
  kill: killing,
};

export const FAULT_POINTS: readonly FaultPoint[] = Object.entries(PLACES).flatMap(([kind, places]) =>
  places.map((place): FaultPoint => `${kind as OperationKind}.${place}`),
);

export interface FaultPoints {
  /** Those who build on the engine have places of their own. */
  pass(point: FaultPoint | `session.${string}` | `build.${string}`): Promise<void> | void;
}

export const noFaults: FaultPoints = { pass: () => {} };
