/**
 * Measures what happens to a sandbox on gVisor, side by side in one run: `runsc` by hand as the lower bound, Torpor's API on
 * top, and a cold start of the same server.
 *
 *   npm run bench:lifecycle             as root; some twenty minutes
 *   npm run bench:lifecycle -- quick    fewer rounds, without the large ones
 *   npm run bench:lifecycle -- disk     one part: small, large, create, disk, crowd, idle or thousand
 *   npm run bench:lifecycle -- small chart   also writes docs/images/wake.svg
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';
import { ANCHORS } from './lifecycle/anchors.ts';
import { wakeChart } from './lifecycle/chart.ts';
import { type Contender, inTurns, type Line } from './lifecycle/contender.ts';
import { crowd, idle, thousand } from './lifecycle/crowd.ts';
import { bareFloor, wholeFloor } from './lifecycle/floors.ts';
import { creates, cycles, disk, seals } from './lifecycle/product.ts';
import { row } from './measure.ts';

const CHART = join(import.meta.dirname, '../docs/images/wake.svg');
const quick = process.argv.includes('quick');
const ROUNDS = quick ? 5 : 15;
const PARTS = ['small', 'large', 'create', 'disk', 'crowd', 'idle', 'thousand'];
const named = PARTS.filter((part) => process.argv.includes(part));
const isAsked = (part: string) =>
  named.length > 0 ? named.includes(part) : !(quick && ['large', 'disk', 'idle', 'thousand'].includes(part));

interface Floors {
  readonly restore: number;
  readonly checkpoint: number;
}

function show(title: string, lines: readonly Line[], { restore, checkpoint }: Floors): void {
  console.log(`\n${title}`);
  console.log(row(['', 'p50 ms', 'p95 ms', '× restore', '× checkpoint']));
  for (const { what, times } of lines)
    console.log(row([what, times.p50, times.p95, times.p50 / restore, times.p50 / checkpoint]));
}

function showAnchors(): void {
  console.log('\nwhat others say or measured, on other machines');
  for (const { act, what, ms, kind, source } of ANCHORS)
    console.log(row([`${act}: ${what}`, ms, `  ${kind}: ${source}`]));
}

async function drawWake(lines: readonly Line[]): Promise<void> {
  const ours = (how: string) =>
    lines.find(({ what }) => what === `request to a paused sandbox, to first HTTP byte, ${how}`)?.times.p50 ??
    0;
  const cold = lines.find(({ what }) => what === 'create with a cold start of it')?.times.p50 ?? 0;
  const measured = 'measured here';
  const bars = [
    { what: 'Torpor, warm', ms: ours('warm'), kind: measured },
    { what: 'Torpor, from the disk', ms: ours('pre-created container'), kind: measured },
    { what: 'cold start of the same server', ms: cold, kind: measured },
    ...ANCHORS.filter(({ act }) => act === 'wake'),
  ] as const;
  await mkdir(dirname(CHART), { recursive: true });
  await writeFile(CHART, wakeChart(bars));
}

const dir = await mkdtemp(join(tmpdir(), 'torpor-bench-'));
const dataDirs = [await makeDataDir(), await makeDataDir(), await makeDataDir()] as const;
const start = (path: string, env: Record<string, string>) =>
  startTorpor(path, { TORPOR_LOG_LEVEL: 'error', TORPOR_AHEAD: '4', ...env }, 'gvisor');
const COLD = { TORPOR_RUNTIMES_WARM_KEEP_MS: '0' };
const [warm, usual, plain] = [
  await start(dataDirs[0].path, {}),
  await start(dataDirs[1].path, COLD),
  await start(dataDirs[2].path, { ...COLD, TORPOR_AHEAD: '0' }),
];
try {
  const { torpor } = usual;
  for (const [part, megabytes] of [
    ['small', 0],
    ['large', 500],
  ] as const) {
    if (!isAsked(part)) continue;
    const whole = await wholeFloor(megabytes);
    const contenders: Contender[] = [
      await bareFloor(dir, megabytes, ROUNDS),
      whole,
      await cycles(warm.torpor, megabytes, 'warm'),
      await cycles(torpor, megabytes, 'pre-created container'),
      await cycles(plain.torpor, megabytes, 'no pre-created container'),
    ];
    await inTurns(contenders, ROUNDS);
    const sealed = await seals(warm.torpor, whole, megabytes, ROUNDS);
    for (const contender of contenders) await contender.end();
    const lines = [...contenders.flatMap((contender) => contender.lines()), ...sealed];
    const title = megabytes === 0 ? 'a small server' : `a server with ${megabytes} MB resident`;
    show(title, lines, { restore: whole.restoreMs(), checkpoint: whole.checkpointMs() });
    if (megabytes > 0) continue;
    showAnchors();
    if (process.argv.includes('chart')) await drawWake(lines);
  }
  if (isAsked('create')) await creates([usual.torpor, plain.torpor], ROUNDS);
  if (isAsked('disk')) await disk(torpor, ROUNDS);
  if (isAsked('crowd')) {
    const floor = await wholeFloor(0);
    const servers = [
      { how: 'warm', server: warm },
      { how: 'pre-created containers as far as there are any', server: usual },
      { how: 'no pre-created container', server: plain },
    ];
    await crowd(servers, floor, quick ? 4 : 20, quick ? 1 : 5);
    await floor.end();
  }
  if (isAsked('idle')) await idle(warm, 200);
  if (isAsked('thousand')) await thousand(usual, 1_000);
} catch (thrown) {
  // Printed here, because an error of the clean-up would replace it.
  console.error(thrown);
  process.exitCode = 1;
} finally {
  for (const server of [warm, usual, plain]) await server.end();
  for (const dataDir of dataDirs) await dataDir.remove();
  await promisify(execFile)('rm', ['-rf', dir]);
}
