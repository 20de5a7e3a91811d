/**
 * Stops, continues and kills all processes of an instance while these may start more processes.
 *
 * A shell that sees a child stop takes the terminal away from the child. So parents are stopped before their children and
 * continued after them.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '@torpor/engine';
import { errnoOf, type ProcessFacts } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

export interface InstanceProcesses {
  /** The present processes, parents first. */
  find(): Promise<ProcessFacts[]>;
  /** Whether a process that was found earlier still exists and is not a zombie. */
  exists(facts: ProcessFacts): Promise<boolean>;
  /** User ids of which only this instance has processes. */
  readonly users: readonly number[];
  readonly clock: Clock;
}

/**
 * Number of consecutive looks that must find nothing to do. A child that a process started right before its stop shows
 * only in the next look, and a process that is just executing another program has no readable environment for a moment.
 */
const QUIET_LOOKS = 2;
/**
 * The number for processes that keep forking. When each process starts its successor and exits, a look often misses both,
 * and on a busy machine the next looks do too.
 */
const FORKING_QUIET_LOOKS = 24;

/** Rounds after which processes that keep forking get one signal for all processes of their user. */
const ROUNDS_BEFORE_USER_SIGNAL = 4;

const MAX_DELAY_MS = 50;

/** Resolves when all processes are stopped. */
export async function stopAll(processes: InstanceProcesses, signal: AbortSignal): Promise<void> {
  const stoppedBefore = new Set<number>();
  for (let quiet = 0, round = 0; quiet < QUIET_LOOKS; round++) {
    signal.throwIfAborted();
    const members = await processes.find();
    if (round === 0) for (const { pid, state } of members) if (state === 'stopped') stoppedBefore.add(pid);
    const active = members.filter(({ state }) => state === 'running' || state === 'uninterruptible');
    quiet = active.length === 0 ? quiet + 1 : 0;
    if (active.length === 0) continue;
    if (round >= ROUNDS_BEFORE_USER_SIGNAL)
      for (const user of processes.users) await signalUser(user, 'STOP');
    for (const { pid } of active) send(pid, 'SIGSTOP');
    for (const pid of vforkChildren(members)) if (!stoppedBefore.has(pid)) send(pid, 'SIGCONT');
    await pause(processes.clock, round, signal);
  }
}

/**
 * The stopped children of processes that wait in the kernel. After `vfork` a parent waits uninterruptibly until its child
 * executes a program. If the child was stopped before, both would wait forever, so the child is continued.
 */
function vforkChildren(members: readonly ProcessFacts[]): number[] {
  const waiting = new Set(members.filter(({ state }) => state === 'uninterruptible').map(({ pid }) => pid));
  return members
    .filter(({ parent, state }) => state === 'stopped' && waiting.has(parent))
    .map(({ pid }) => pid);
}

/**
 * Continues all processes except those that were stopped before the freeze. Each gets one signal: a process that stops
 * again at once stops by itself.
 */
export async function continueAll(
  processes: InstanceProcesses,
  stoppedBefore: (facts: ProcessFacts) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const continued = new Set<number>();
  for (;;) {
    signal.throwIfAborted();
    const stopped = (await processes.find()).filter(
      (facts) => facts.state === 'stopped' && !continued.has(facts.pid) && !stoppedBefore(facts),
    );
    if (stopped.length === 0) return;
    for (const { pid } of stopped.toReversed()) {
      continued.add(pid);
      send(pid, 'SIGCONT');
    }
  }
}

/**
 * Resolves when no process is left. All processes are stopped first, so that none can start another while the rest are
 * killed. An exiting process loses its environment before it releases its ports, so it is awaited by its pid.
 */
export async function killAll(processes: InstanceProcesses, signal: AbortSignal): Promise<void> {
  const ending = new Map<number, ProcessFacts>();
  const seen = new Set<number>();
  let wanted = QUIET_LOOKS;
  for (let quiet = 0, round = 0; quiet < wanted; round++) {
    signal.throwIfAborted();
    const found = await processes.find();
    for (const facts of found) {
      if (round > 0 && !seen.has(facts.pid)) wanted = FORKING_QUIET_LOOKS;
      seen.add(facts.pid);
      ending.set(facts.pid, facts);
    }
    for (const facts of [...ending.values()]) if (!(await processes.exists(facts))) ending.delete(facts.pid);
    quiet = ending.size === 0 ? quiet + 1 : 0;
    if (ending.size === 0) {
      if (wanted > QUIET_LOOKS) await pause(processes.clock, quiet, signal);
      continue;
    }
    for (const group of groupsOf(found)) send(-group, 'SIGKILL');
    for (const user of processes.users) await signalUser(user, 'KILL');
    for (const name of ['SIGSTOP', 'SIGKILL'] as const) for (const pid of ending.keys()) send(pid, name);
    await pause(processes.clock, round, signal);
  }
}

/**
 * The kernel signals all processes of a group in one step, during which none of them can fork. So a process that has already
 * started its successor and exited does not save the successor.
 */
function groupsOf(members: readonly ProcessFacts[]): Set<number> {
  // -1 and 0 would name all processes of the machine, and those of the server.
  return new Set(members.map(({ group }) => group).filter((group) => group > 1));
}

/** A process or a group (a negative number) that has ended in the meantime is ignored. */
function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (cause) {
    if (errnoOf(cause) === 'ESRCH') return;
    throw new TorporError('unreachable', `Process ${pid} of the sandbox cannot be sent ${signal}.`, {
      cause,
    });
  }
}

/** The kernel signals all processes of a user in one step, during which none of them can fork. */
async function signalUser(user: number, name: 'STOP' | 'KILL'): Promise<void> {
  const child = spawn('/bin/sh', ['-c', `kill -${name} -1`], {
    uid: user,
    gid: user,
    stdio: 'ignore',
    cwd: '/',
    env: {},
    detached: true,
  });
  // When the user may start no more processes, only the individual signals remain.
  await once(child, 'close').catch(() => {});
}

function pause(clock: Clock, round: number, signal: AbortSignal): Promise<void> {
  return clock.sleep(Math.min(2 ** round, MAX_DELAY_MS), signal);
}
