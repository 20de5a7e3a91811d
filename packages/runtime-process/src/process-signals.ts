/**
 * Stopping, continuing and killing all processes of an instance, whatever they do meanwhile.
 *
 * A shell notices when its child stops before it does itself, and takes the terminal away from it. So
 * parents are stopped before their children and continued after them.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '@torpor/engine';
import type { ProcessFacts } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

export interface Crowd {
  /** Who belongs now, parents first. */
  find(): Promise<ProcessFacts[]>;
  /** Whether one that belonged is still there, in whatever shape. */
  isThere(facts: ProcessFacts): Promise<boolean>;
  /** Users that nobody else runs as. */
  readonly users: readonly number[];
  readonly clock: Clock;
}

/**
 * What a process started before it was stopped or killed shows only in the next look, and one that is just becoming
 * another program shows no mark for a moment: so one more look has to be quiet.
 */
const QUIET_LOOKS = 2;
/**
 * Where one always starts the next and ends, a look often misses both, and on a busy machine so does the one right
 * after it: such a crowd has to be quiet for longer.
 */
const QUIET_LOOKS_OF_MANY = 6;

/** Rounds after which a crowd that multiplies is met with one signal for all of it. */
const PATIENT_ROUNDS = 4;

const LONGEST_PAUSE_MS = 50;

/** Resolves when nothing of the crowd moves any more. */
export async function stopAll(crowd: Crowd, signal: AbortSignal): Promise<void> {
  const stoppedBefore = new Set<number>();
  for (let quiet = 0, round = 0; quiet < QUIET_LOOKS; round++) {
    signal.throwIfAborted();
    const members = await crowd.find();
    if (round === 0) for (const { pid, state } of members) if (state === 'stopped') stoppedBefore.add(pid);
    const moving = members.filter(({ state }) => state === 'moving' || state === 'busy');
    quiet = moving.length === 0 ? quiet + 1 : 0;
    if (moving.length === 0) continue;
    if (round >= PATIENT_ROUNDS) for (const user of crowd.users) await signalUser(user, 'STOP');
    for (const { pid } of moving) send(pid, 'SIGSTOP');
    for (const pid of holdingUp(members)) if (!stoppedBefore.has(pid)) send(pid, 'SIGCONT');
    await pause(crowd.clock, round, signal);
  }
}

/**
 * A process that starts another by `vfork` waits in the kernel until that one has become a program of its
 * own. If the child was stopped before, both would stay as they are: it gets to go on a little.
 */
function holdingUp(members: readonly ProcessFacts[]): number[] {
  const busy = new Set(members.filter(({ state }) => state === 'busy').map(({ pid }) => pid));
  return members.filter(({ parent, state }) => state === 'stopped' && busy.has(parent)).map(({ pid }) => pid);
}

/**
 * Continues everyone but those that had been stopped by somebody else before. Each gets one signal, because
 * one that stops again at once does so of its own.
 */
export async function continueAll(
  crowd: Crowd,
  stoppedBefore: (facts: ProcessFacts) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const continued = new Set<number>();
  for (;;) {
    signal.throwIfAborted();
    const stopped = (await crowd.find()).filter(
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
 * Resolves when nobody is left. All are stopped first, so that none can start another while the rest are
 * killed. One that is ending loses its marks before it lets go of its ports, so it is waited for by name.
 */
export async function killAll(crowd: Crowd, signal: AbortSignal): Promise<void> {
  const ending = new Map<number, ProcessFacts>();
  const seen = new Set<number>();
  let wanted = QUIET_LOOKS;
  for (let quiet = 0, round = 0; quiet < wanted; round++) {
    signal.throwIfAborted();
    for (const facts of await crowd.find()) {
      if (round > 0 && !seen.has(facts.pid)) wanted = QUIET_LOOKS_OF_MANY;
      seen.add(facts.pid);
      ending.set(facts.pid, facts);
    }
    for (const facts of [...ending.values()]) if (!(await crowd.isThere(facts))) ending.delete(facts.pid);
    quiet = ending.size === 0 ? quiet + 1 : 0;
    if (ending.size === 0) {
      if (wanted > QUIET_LOOKS) await pause(crowd.clock, quiet, signal);
      continue;
    }
    for (const user of crowd.users) await signalUser(user, 'KILL');
    for (const name of ['SIGSTOP', 'SIGKILL'] as const) for (const pid of ending.keys()) send(pid, name);
    await pause(crowd.clock, round, signal);
  }
}

/** One who ended in the meantime needs no signal. */
function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ESRCH') return;
    throw new TorporError('unreachable', `Process ${pid} of the sandbox cannot be sent ${signal}.`, {
      cause,
    });
  }
}

/** The kernel signals all processes of a user in one step, in which nobody can be born. */
async function signalUser(user: number, name: 'STOP' | 'KILL'): Promise<void> {
  const child = spawn('/bin/sh', ['-c', `kill -${name} -1`], {
    uid: user,
    gid: user,
    stdio: 'ignore',
    cwd: '/',
    env: {},
    detached: true,
  });
  // When there is no room for even one process more, the signals one by one have to do.
  await once(child, 'close').catch(() => {});
}

function pause(clock: Clock, round: number, signal: AbortSignal): Promise<void> {
  return clock.sleep(Math.min(2 ** round, LONGEST_PAUSE_MS), signal);
}
