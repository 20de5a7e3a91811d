/**
 * Named places between two effects, where a crash campaign kills the server for real.
 * Outside of such a campaign passing one costs nothing.
 */
import type { OperationKind } from '@torpor/protocol';

/** In the order in which an operation passes them. */
export const START_POINTS = ['claimed', 'cleared', 'inspected', 'started', 'observed', 'committed'] as const;
export const SEAL_POINTS = [
  'claimed',
  'closed',
  'synced',
  'frozen',
  'cut',
  'captured',
  'sealed',
  'committed',
  'thawed',
] as const;
export const KILL_POINTS = ['claimed', 'destroyed', 'committed'] as const;

type StartPoint = `start-${(typeof START_POINTS)[number]}`;
type SealPoint = `seal-${(typeof SEAL_POINTS)[number]}`;
type KillPoint = `kill-${(typeof KILL_POINTS)[number]}`;
export type FaultPoint = `${OperationKind}.${StartPoint | SealPoint | KillPoint}`;

export interface FaultPoints {
  pass(point: FaultPoint): Promise<void> | void;
}

export const noFaults: FaultPoints = { pass: () => {} };
