/**
 * What the kernel makes of our control groups: it is asked for real, here or, when this file is run as a program, in
 * whatever machine that is.
 */
import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Cgroups, findCgroups } from '../src/container/cgroups.ts';

const run = promisify(execFile);

export interface CgroupTrial {
  readonly version: string;
  readonly controllers: readonly string[];
  /** Whether a command that was led in was a member. */
  readonly isMember: boolean;
  /** How one ended that took more memory than it may, and with the limit taken away. */
  readonly hog: string;
  readonly hogWithoutLimit: string;
  /** What was counted against it. */
  readonly killed: number;
  readonly refused: number;
  /** Whether the group went while something was in it, and when nothing was. */
  readonly wentBusy: boolean;
  readonly wentEmpty: boolean;
}

/** What is to come of it wherever there are all three controllers. */
export const GOOD_TRIAL: Omit<CgroupTrial, 'version'> = {
  controllers: ['memory', 'cpu', 'pids'],
  isMember: true,
  hog: '0',
  hogWithoutLimit: '100000000',
  killed: 1,
  refused: 1,
  wentBusy: false,
  wentEmpty: true,
};

const NAME = 'one';
/** Holds so many bytes at once. */
const hold = (bytes: number) => ['sh', '-c', `head -c ${bytes} /dev/zero | tail -c ${bytes} | wc -c`];

/** Undefined where there are no control groups that we may use. */
export async function cgroupTrial(parent: string): Promise<CgroupTrial | undefined> {
  const host = await findCgroups();
  if (host === null) return undefined;
  const cgroups = new Cgroups(host, parent);
  await cgroups.open();
  await cgroups.make(NAME);
  const inside = async (command: readonly string[]) => {
    const [program, ...args] = cgroups.entering(NAME, command);
    return run(program, args).then(
      ({ stdout }) => stdout.trim(),
      (failed: Error & { stderr: string }) => failed.stderr.trim(),
    );
  };
  try {
    await cgroups.limit(NAME, { memoryMb: 1, cpus: 0.5, processes: 1 });
    const isMember = (await inside(['cat', '/proc/self/cgroup'])).includes(`/${parent}/${NAME}`);
    const hog = await inside(hold(100_000_000));
    await inside(['sh', '-c', 'i=0; while [ $i -lt 400 ]; do sleep 600 >/dev/null 2>&1 & i=$((i+1)); done']);
    for (const pid of await cgroups.members(NAME)) process.kill(pid, 'SIGKILL');
    const { memory: killed, processes: refused } = await cgroups.refused(NAME);
    await cgroups.limit(NAME, {});
    const hogWithoutLimit = await inside(hold(100_000_000));
    const busy = inside(['sleep', '1']);
    await until(async () => (await cgroups.members(NAME)).length > 0);
    const wentBusy = await cgroups.remove(NAME);
    await busy;
    await until(async () => (await cgroups.members(NAME)).length === 0);
    const wentEmpty = await cgroups.remove(NAME);
    const { version, controllers } = host;
    return { version, controllers, isMember, hog, hogWithoutLimit, killed, refused, wentBusy, wentEmpty };
  } finally {
    await cgroups.close();
  }
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  while (!(await isSo())) await delay(10);
}

if (process.argv[1] === import.meta.filename) {
  console.log(JSON.stringify(await cgroupTrial('torpor-trial')));
}
