/** A user id for each instance, when we are root and may choose: nobody else on the machine runs as it. */
import { randomInt } from 'node:crypto';
import type { HostProcesses } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

export interface UserRange {
  readonly first: number;
  readonly count: number;
}

/** Above the ids that distributions give to people and services. */
const DEFAULT_USERS: UserRange = { first: 700_000, count: 1_000_000 };

const TRIES = 100;

/** Fewer than this are not meant for giving away: the user of a container is often alone in it. */
const FEWEST = 10_000;

/**
 * The users that may be given away here, by the text of /proc/self/uid_map: in a container root has only
 * those that it was given. Null when there are none, and root is then only the name of an ordinary user.
 */
export function availableUsers(uidMap: string, wanted: UserRange = DEFAULT_USERS): UserRange | null {
  const extents = uidMap.split('\n').flatMap((line): UserRange[] => {
    const [first, , count] = line.trim().split(/\s+/).map(Number);
    return first === undefined || count === undefined ? [] : [{ first, count }];
  });
  const holds = (one: UserRange) =>
    one.first <= wanted.first && wanted.first + wanted.count <= one.first + one.count;
  if (extents.some(holds)) return wanted;
  const largest = extents.toSorted((a, b) => b.count - a.count)[0];
  if (largest === undefined || largest.count < FEWEST) return null;
  // The upper end, away from the users that the system in the container has.
  const count = Math.floor(largest.count / 8);
  return { first: largest.first + largest.count - 2 * count, count };
}

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
  for (const facts of await host.all()) for (const user of await host.userIds(facts)) running.add(user);
  for (let tries = 0; tries < TRIES; tries++) {
    const user = first + random(count);
    if (!taken.has(user) && !running.has(user)) return user;
  }
  throw new TorporError('capacity', `No user id from ${first} on is free.`);
}
