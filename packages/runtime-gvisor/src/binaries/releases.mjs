/**
 * What each version of runsc can do. This is the only file that judges a version.
 *
 * Plain JavaScript that runs on Node 20, because the setup of a clone reads it before anything is installed.
 */

/** The version that is built where Go is installed. The toolchain is pinned so that every host gets the same program. */
export const PINNED = {
  source: 'gvisor.dev/gvisor/runsc@v0.0.0-20260701204157-69c2d17aea96',
  versionVariable: 'gvisor.dev/gvisor/runsc/version.version',
  name: 'release-20260701.0',
  toolchain: 'go1.26.8',
};

/** Before this day, the checkpoint of a program that waits for connections panics. */
const OLDEST_USABLE = 20230601;
/** From this day on, a runsc on the search path is preferred to a built one. */
const RECENT = 20260101;
/** The days of the versions that the contract suite and the attack tests run on. */
const TESTED = [20240729, 20260701];

/**
 * The day in a version's name, such as 20240729 in `0.0~20240729.0`; null when there is none.
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
 * What a usable version cannot do, one sentence each, for `torpor doctor`.
 * @param {number | null} day
 * @returns {string[]}
 */
export function limitsOf(day) {
  if (!isRecent(day)) {
    return [
      'root in a user namespace can change the settings of the network device of its sandbox',
      'programs with open, deleted files cannot be paused with their memory',
      'a listener with a full backlog keeps a memory image from being restored',
      'set-user-ID programs cannot change their user',
      'an idle sandbox takes about 3 % of a processor',
    ];
  }
  return TESTED.includes(day ?? 0) ? [] : ['this version was not tested with Torpor'];
}

/**
 * Old versions let root in any user namespace open raw and packet sockets of the network of the sandbox.
 * @param {number | null} day
 */
export function givesRawSockets(day) {
  return !isRecent(day);
}

/**
 * Old versions take every network namespace for the host's own when the kernel shows /proc/sys/net/core in it.
 * @param {number | null} day
 */
export function mistakesNetworkNamespaces(day) {
  return !isRecent(day);
}

/**
 * Whether set-user-ID programs of a guest can change their user. The attacks on them were tried on these versions.
 * @param {number | null} day
 */
export function allowsSetuid(day) {
  return isRecent(day);
}

/**
 * Whether a checkpoint reads every page that a program has reserved, also pages that were never touched. That takes
 * seconds for each GiB, cannot be stopped, and the sandbox stands still meanwhile.
 * @param {number | null} day
 */
export function readsUntouchedMemory(day) {
  return !isRecent(day);
}
