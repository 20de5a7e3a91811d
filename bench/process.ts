/**
 * The process runtime in a real server: create, exec, pause, resume, snapshot and fork of a sandbox with 10 and with
 * 10,000 files.
 *
 *   npm run bench:process
 *
 * The unit is `cp -a` and `sync` of the same tree in the same run: the time of copying those files durably on this
 * machine.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';
import { row, time } from './measure.ts';

const run = promisify(execFile);
const ROUNDS = 7;

async function bench(dir: string, files: number): Promise<void> {
  const dataDir = await makeDataDir();
  const server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' });
  const { sandboxes } = server.torpor;
  try {
    const source = join(dir, `tree-${files}`);
    await mkdir(source);
    for (let i = 0; i < files; i++) {
      if (i % 100 === 0) await mkdir(join(source, `d${i / 100}`));
      await writeFile(join(source, `d${Math.floor(i / 100)}`, `f${i}`), `file ${i}\n`.repeat(100));
    }
    const copyAndSync = 'cp -a "$0" "$1" && find "$1" -type f -exec sync {} + && rm -rf "$1"';
    const unit = await time(3, () => run('sh', ['-c', copyAndSync, source, `${source}-copy`]));

    const create = await time(ROUNDS, async () => {
      await sandboxes.kill((await sandboxes.create()).id);
    });
    const { id } = await sandboxes.create({ idleSeconds: 86_400 });
    await sandboxes.exec(
      id,
      `for i in $(seq 0 ${files - 1}); do d=d$((i / 100)); [ -d $d ] || mkdir $d; echo "file $i" > $d/f$i; done`,
    );
    const first = await time(1, () => sandboxes.pause(id));
    await sandboxes.resume(id);
    const exec = await time(ROUNDS, () => sandboxes.exec(id, 'true'));
    const cycle = { pause: [] as number[], resume: [] as number[] };
    for (let i = 0; i < ROUNDS; i++) {
      await sandboxes.exec(id, `echo ${i} > changed`);
      cycle.pause.push((await time(1, () => sandboxes.pause(id))).p50);
      cycle.resume.push((await time(1, () => sandboxes.resume(id))).p50);
    }
    const snapshot = await time(ROUNDS, () => sandboxes.snapshot(id));
    const fork = await time(ROUNDS, async () => {
      const { items } = await sandboxes.fork(id);
      for (const item of items) if ('sandbox' in item) await sandboxes.kill(item.sandbox.id);
    });
    console.log(`\n${files.toLocaleString('en')} files`);
    console.log(row(['', 'p50 ms', '× unit']));
    const median = (times: number[]) => times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0;
    for (const [what, ms] of [
      ['unit: cp -a and sync', unit.p50],
      ['create and kill', create.p50],
      ['exec true', exec.p50],
      ['first pause', first.p50],
      ['pause, one file changed', median(cycle.pause)],
      ['resume', median(cycle.resume)],
      ['snapshot', snapshot.p50],
      ['fork and kill', fork.p50],
    ] as const) {
      console.log(row([what, ms, ms / unit.p50]));
    }
  } finally {
    await server.kill('SIGTERM');
    await dataDir.remove();
  }
}

const dir = await mkdtemp(join(tmpdir(), 'torpor-bench-'));
try {
  for (const files of [10, 10_000]) await bench(dir, files);
} finally {
  await rm(dir, { recursive: true });
}
