/** Chooses an unused user id for each instance when the server runs as root. */
import { randomInt } from 'node:crypto';
import type { HostProcesses } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

export interface UserRange {
  readonly first: number;
  readonly count: number;
}

/** Above the ids that distributions assign to people and services. */
const DEFAULT_USERS: UserRange = { first: 700_000, count: 1_000_000 };

const TRIES = 100;

/** A smaller range is not meant to be divided: many containers have only one user id. */
const FEWEST = 10_000;

/**
 * The usable user ids according to the text of /proc/self/uid_map: in a user namespace root has only the mapped ids. Null
 * when there are not enough; root is then an ordinary user.
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
  // Near the upper end, away from the ids that the system in the container uses.
  const count = Math.floor(largest.count / 8);
  return { first: largest.first + largest.count - 2 * count, count };
}

/**
 * Chooses at random, because another Torpor server on this machine may use the same range and a signal to all processes of
 * a user must never reach that server's processes. `taken` contains the ids of all instances, alive or dead.
 */
export async function chooseUser(
  { first, count }: UserRange,
  taken: ReadonlySet<number>,
  host: HostProcesses,
  random: (below: number) => number = randomInt,
): Promise<number> {
  const running = new Set<number>();
  for (const facts of await host.all()) {
    // A zombie waits for its parent, which may take long. It runs nothing, and no signal has an effect on it.
    if (facts.state === 'dead') continue;
    for (const user of await host.userIds(facts)) running.add(user);
  }
  for (let tries = 0; tries < TRIES; tries++) {
    const user = first + random(count);
    if (!taken.has(user) && !running.has(user)) return user;
  }
  throw new TorporError('capacity', `No user id from ${first} on is free.`);
}
