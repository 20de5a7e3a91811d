import type { JobId, TrackedJobView } from '@torpor/protocol';
import { Sandbox, type Torpor } from '@torpor/sdk';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';

const QUIET = { TORPOR_LOG_LEVEL: 'error' };
const UNTIL_ENOUGH = 'until [ -e enough ]; do sleep 0.05; done';
const WEB = { name: 'web', command: 'exec sleep 1000' };

const noGvisor = await whyNoGvisor();

/** The incident: "The platform still reports the original tracked driver job as running". */
describe('jobs of real sandboxes', () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  beforeEach(async () => {
    dataDir = await makeDataDir();
  });
  afterEach(() => dataDir.remove());

  const jobOf = async (torpor: Torpor, id: JobId) => (await torpor.jobs.get(id)) as TrackedJobView;
  const started = async (sandbox: Sandbox, command: string): Promise<JobId> => {
    const { jobId } = await sandbox.torpor.sandboxes.execInBackground(sandbox.id, command);
    return jobId;
  };

  it('that end while the server is dead are found by the next one (R89, R98, R108)', {
    timeout: 90_000,
  }, async () => {
    const dying = await startTorpor(dataDir.path, QUIET);
    const { torpor } = dying;
    const sandbox = await Sandbox.create({ services: [WEB], idleSeconds: 86_400 }, { torpor });
    const web = sandbox.view.services[0]?.jobId as JobId;
    const ends = await started(sandbox, `until [ -e ended ]; do sleep 0.05; done; exit 4`);
    const goesOn = await started(sandbox, 'sleep 1000');
    // Ends without anybody's help while no server is there.
    await sandbox.exec('(sleep 1; touch ended) >/dev/null 2>&1 &');
    await dying.kill('SIGKILL');

    const next = await startTorpor(dataDir.path, QUIET);
    try {
      await expect
        .poll(() => jobOf(next.torpor, ends), { timeout: 20_000 })
        .toMatchObject({ state: 'completed', exitCode: 4 });
      expect(await jobOf(next.torpor, goesOn)).toMatchObject({ state: 'running' });
      expect(await jobOf(next.torpor, web)).toMatchObject({ state: 'running', restarts: 0 });

      // This runtime keeps files alone: what does not come back is lost, and the service is started again.
      await next.torpor.sandboxes.pause(sandbox.id);
      const reason = { lost: { reason: 'files_only_pause' } };
      expect(await jobOf(next.torpor, goesOn)).toMatchObject({ state: 'lost', ...reason });
      expect(await jobOf(next.torpor, web)).toMatchObject({ state: 'lost', ...reason });
      await next.torpor.sandboxes.resume(sandbox.id);
      expect(await jobOf(next.torpor, goesOn)).toMatchObject({ state: 'lost' });
      expect(await jobOf(next.torpor, web)).toMatchObject({ state: 'running', restarts: 1, generation: 2 });
      expect(await next.torpor.jobs.end(web)).toMatchObject({ state: 'completed', signal: 'SIGTERM' });
    } finally {
      await next.end();
    }
  });

  it.skipIf(noGvisor !== null)(
    'come back with the memory of their sandbox, under the same ids (R98)',
    { timeout: 120_000 },
    async () => {
      const server = await startTorpor(dataDir.path, QUIET, 'gvisor');
      const { torpor } = server;
      try {
        const sandbox = await Sandbox.create({ services: [WEB], idleSeconds: 86_400 }, { torpor });
        const web = sandbox.view.services[0]?.jobId as JobId;
        const job = await started(sandbox, `${UNTIL_ENOUGH}; exit 6`);
        const before = await jobOf(torpor, job);
        await sandbox.pause();
        for (const id of [job, web]) expect(await jobOf(torpor, id)).toMatchObject({ state: 'suspended' });
        await sandbox.resume();
        expect(await jobOf(torpor, web)).toMatchObject({ state: 'running', restarts: 0 });
        expect(await jobOf(torpor, job)).toEqual(before);
        const [fork] = await sandbox.fork();
        const copies: TrackedJobView[] = [];
        if (fork !== undefined) for await (const one of fork.jobs.list()) copies.push(one);
        const copy = copies.find(({ forkedFrom }) => forkedFrom === job);
        expect(copies).toHaveLength(2);
        await sandbox.exec('touch enough');
        await expect.poll(() => jobOf(torpor, job)).toMatchObject({ state: 'completed', exitCode: 6 });
        // The fork's process goes on, and is ended by itself.
        expect(await jobOf(torpor, copy?.id ?? job)).toMatchObject({ state: 'running' });
        expect(await torpor.jobs.end(copy?.id ?? job)).toMatchObject({
          state: 'completed',
          signal: 'SIGTERM',
        });
        expect(await jobOf(torpor, web)).toMatchObject({ state: 'running' });
      } finally {
        await server.end();
      }
    },
  );
});
