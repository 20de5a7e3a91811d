/**
 * Which versions of runsc are known, and what they can do. This is the only place that judges a version.
 *
 * Plain JavaScript that runs on Node 20, because the set-up of a clone reads it before anything is installed.
 */

/** The version that is built where Go is there. The toolchain is pinned so that every machine gets the same program. */
export const PINNED = {
  source: 'gvisor.dev/gvisor/runsc@v0.0.0-20260701204157-69c2d17aea96',
  versionVariable: 'gvisor.dev/gvisor/runsc/version.version',
  name: 'release-20260701.0',
  toolchain: 'go1.26.8',
};

/** Before this day, a checkpoint of a program that waits for connections panics. */
const OLDEST_USABLE = 20230601;
/** From this day on, a runsc on the search path is preferred to the one that was built. */
const RECENT = 20260101;
/** The days of the versions that the contract suite and the attack tests run on. */
const TESTED = [20240729, 20260701];

/**
 * The day in a version's name, such as 20240729 in `0.0~20240729.0`; null when the name has none.
 * @param {string | undefined} name
 * @returns {number | null}
 */
export function dayOf(name) {
  const [day] = /\d{8}/.exec(name ?? '') ?? [];
  return day === undefined ? null : Number(day);
}

/** @param {number | null} day */
export function isUsable(day) {
  return day !== null && day >= OLDEST_USABLE;
}

/** @param {number | null} day */
export function isRecent(day) {
  return day !== null && day >= RECENT;
}

/**
 * What a usable version cannot do, one sentence each, for people.
 * @param {number | null} day
 * @returns {string[]}
 */
export function limitsOf(day) {
  if (!isRecent(day)) {
    return [
      'a user namespace may change the settings of the network device of its own sandbox',
      'programs with open, deleted files cannot be paused with their memory',
      'a listener with a full backlog keeps a memory image from being restored',
      'an idle sandbox takes about 3 % of a processor',
    ];
  }
  return TESTED.includes(day ?? 0) ? [] : ['this version was not tested with Torpor'];
}

/**
 * Old versions let root of any user namespace open raw and packet sockets of a network that is not its own.
 * @param {number | null} day
 */
export function givesRawSockets(day) {
  return !isRecent(day);
}

/**
 * Old versions take every network namespace for the machine's own when the kernel shows
 * /proc/sys/net/core in it.
 * @param {number | null} day
 */
export function mistakesNetworkNamespaces(day) {
  return !isRecent(day);
}

/**
 * Whether a checkpoint looks at every page that a program has reserved, also at those that it never touched. That takes
 * seconds for each GiB, cannot be stopped, and keeps the sandbox from going on.
 * @param {number | null} day
 */
export function readsUntouchedMemory(day) {
  return !isRecent(day);
}
