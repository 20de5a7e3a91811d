/**
 * The time of a build without its runner: from the request to `ready`, stage by stage, and from there to the pause; then
 * a resume and a snapshot through the builds API.
 *
 *   npm run bench:builds [process|gvisor]
 *
 * The starter only copies files, so its own time is negligible. The unit is a bare sandbox of the same server: created,
 * one command run in it, paused, resumed, killed.
 */
import type { BuildState } from '@torpor/sdk';
import { follow, untilPaused } from '../tests/builds/whole-build.ts';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';
import { row, time } from './measure.ts';

const ROUNDS = 5;
const runtime = process.argv[2] === 'gvisor' ? 'gvisor' : 'process';

const dataDir = await makeDataDir();
const server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
try {
  const { builds, sandboxes } = server.torpor;
  const unit = await time(ROUNDS, async () => {
    const { id } = await sandboxes.create();
    await sandboxes.exec(id, 'true');
    await sandboxes.pause(id);
    await sandboxes.resume(id);
    await sandboxes.kill(id);
  });
  const stages = new Map<BuildState, number[]>();
  const ids: Awaited<ReturnType<typeof builds.start>>['job_id'][] = [];
  const toReady: number[] = [];
  const toSleep: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const begun = performance.now();
    const { job_id } = await builds.start({ project_id: 'bench', goal: 'a page' });
    ids.push(job_id);
    let before: { status: BuildState; at: number } | undefined;
    for await (const { type, status, timestamp } of builds.events(job_id)) {
      if (type !== 'build.stage.started') continue;
      const at = Date.parse(timestamp);
      if (before !== undefined)
        stages.set(before.status, [...(stages.get(before.status) ?? []), at - before.at]);
      before = { status, at };
    }
    const ready = performance.now();
    await untilPaused(server, job_id);
    toReady.push(ready - begun);
    toSleep.push(performance.now() - ready);
  }
  const simulated = await time(ROUNDS, async () => {
    const { job_id } = await builds.start({ project_id: 'none', goal: 'nothing', runner: 'none' });
    await follow(server, job_id);
  });
  const resume = await time(ids.length, (i) => builds.resume(ids[i] ?? 'job_'));
  const snapshot = await time(ids.length, (i) => builds.snapshot(ids[i] ?? 'job_'));
  const median = (times: readonly number[]) => times.toSorted((a, b) => a - b)[times.length >> 1] ?? 0;
  console.log(`builds on ${runtime}, ${ROUNDS} rounds\n${row(['', 'p50 ms', '× unit'])}`);
  for (const [what, ms] of [
    ['unit: one bare sandbox', unit.p50],
    ['queued to ready', median(toReady)],
    ...[...stages].map(([stage, times]) => [`  ${stage}`, median(times)] as const),
    ['ready to paused', median(toSleep)],
    ['without a sandbox (none)', simulated.p50],
    ['resume', resume.p50],
    ['snapshot', snapshot.p50],
  ] as const) {
    console.log(row([what, ms, ms / unit.p50]));
  }
} finally {
  await server.end();
  await dataDir.remove();
}
