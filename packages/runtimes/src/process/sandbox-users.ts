/** A user id for each instance, when we are root and may choose: nobody else on the machine runs as it. */
import { randomInt } from 'node:crypto';
import { TorporError } from '@torpor/protocol';
import type { HostProcesses } from './host-processes.ts';

export interface UserRange {
  readonly first: number;
  readonly count: number;
}

/** Above the ids that distributions give to people and services. */
export const DEFAULT_USERS: UserRange = { first: 700_000, count: 1_000_000 };

const TRIES = 100;

/**
 * Chosen at random, because another Torpor on this machine may use the same range and killing by user id
 * must never reach its processes. `taken` are the ids of instances, alive or dead.
 */
export async function chooseUser(
  { first, count }: UserRange,
  taken: ReadonlySet<number>,
  host: HostProcesses,
  random: (below: number) => number = randomInt,
): Promise<number> {
  const running = new Set<number>();
  for (const facts of await host.all()) for (const user of await host.users(facts)) running.add(user);
  for (let tries = 0; tries < TRIES; tries++) {
    const user = first + random(count);
    if (!taken.has(user) && !running.has(user)) return user;
  }
  throw new TorporError('capacity', `No user id from ${first} on is free.`);
}
