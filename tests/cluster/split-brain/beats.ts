/**
 * The beats of sandboxes. A program in each sandbox writes a line several times a second: when, by CLOCK_BOOTTIME, and which run
 * of the sandbox it is. The lines of all runs go to one file on the host, so no network, no pause and no lost file hides any.
 */

export interface Beat {
  /** Milliseconds of CLOCK_BOOTTIME. */
  readonly at: number;
  /** Different for each process that ever ran for the sandbox, on any node. */
  readonly run: string;
}

export interface Run {
  readonly run: string;
  readonly first: number;
  readonly last: number;
  readonly beats: number;
}

/** A shell command that beats for ever, in the `process` runtime: its sandboxes see the file system of the host. */
export function beatCommand(directory: string): string {
  // The variable is `<sandbox>/<generation>`. The clock is read last before the line is written, in one write.
  const line = `"$up \${TORPOR_INSTANCE#*/}:$$"`;
  const file = `"${directory}/\${TORPOR_INSTANCE%%/*}"`;
  return `while :; do read up rest < /proc/uptime; echo ${line} >> ${file}; sleep 0.2; done`;
}

export function parseBeats(text: string): Beat[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [seconds = '', run = ''] = line.split(' ');
      return { at: Math.round(Number(seconds) * 1_000), run };
    });
}

/** The runs in the order of their first beats. */
export function runsOf(beats: readonly Beat[]): Run[] {
  const runs = new Map<string, Run>();
  for (const { at, run } of beats) {
    const known = runs.get(run);
    runs.set(run, {
      run,
      first: Math.min(at, known?.first ?? at),
      last: Math.max(at, known?.last ?? at),
      beats: (known?.beats ?? 0) + 1,
    });
  }
  return [...runs.values()].sort((a, b) => a.first - b.first);
}

/** Runs that beat at the same time: there must be none. A run lasts from its first beat to its last one. */
export function overlaps(runs: readonly Run[]): string[] {
  const found: string[] = [];
  let latest: Run | undefined;
  for (const run of runs) {
    if (latest !== undefined && run.first <= latest.last) {
      found.push(`${run.run} began at ${run.first}, and ${latest.run} beat until ${latest.last}`);
    }
    if (latest === undefined || run.last > latest.last) latest = run;
  }
  return found;
}
