/**
 * Tries control groups on a real kernel: on the host, or, when this file is run as a program, on the machine that
 * runs it.
 */
import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Cgroups, findCgroups } from '../src/container/cgroups.ts';

const run = promisify(execFile);

export interface CgroupTrial {
  readonly version: string;
  readonly controllers: readonly string[];
  /** Whether a command that entered the group was a member. */
  readonly isMember: boolean;
  /** The output of a command that uses more memory than allowed, with the limit and without it. */
  readonly hog: string;
  readonly hogWithoutLimit: string;
  /** How often the kernel killed a process for memory, and refused to create one. */
  readonly killed: number;
  readonly refused: number;
  /** Whether the group could be removed with a member in it, and without. */
  readonly removedBusy: boolean;
  readonly removedEmpty: boolean;
}

/** The expected result where all three controllers exist. */
export const GOOD_TRIAL: Omit<CgroupTrial, 'version'> = {
  controllers: ['memory', 'cpu', 'pids'],
  isMember: true,
  hog: '0',
  hogWithoutLimit: '100000000',
  killed: 1,
  refused: 1,
  removedBusy: false,
  removedEmpty: true,
};

const NAME = 'one';
/** A command that holds this many bytes in memory. */
const hold = (bytes: number) => ['sh', '-c', `head -c ${bytes} /dev/zero | tail -c ${bytes} | wc -c`];

/** Undefined where no control groups can be used. */
export async function cgroupTrial(parent: string): Promise<CgroupTrial | undefined> {
  const host = await findCgroups();
  if (host === null) return undefined;
  const cgroups = new Cgroups(host, parent);
  await cgroups.open();
  await cgroups.make(NAME);
  const inside = async (command: readonly string[]) => {
    const [program, ...args] = cgroups.wrap(NAME, command);
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
    const removedBusy = await cgroups.remove(NAME);
    await busy;
    await until(async () => (await cgroups.members(NAME)).length === 0);
    const removedEmpty = await cgroups.remove(NAME);
    const { version, controllers } = host;
    return {
      version,
      controllers,
      isMember,
      hog,
      hogWithoutLimit,
      killed,
      refused,
      removedBusy,
      removedEmpty,
    };
  } finally {
    await cgroups.close();
  }
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await delay(10);
}

if (process.argv[1] === import.meta.filename) {
  console.log(JSON.stringify(await cgroupTrial('torpor-trial')));
}
