import { Sandbox } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { ALL, follow, GOALS, requestPreview, sandboxOf, untilPaused } from '../builds/whole-build.ts';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { type E2bServer, e2bServer } from './e2b-server.ts';

const why = await whyNoGvisor();

/** `npm run test:e2b`: features that need forks, at a provider with snapshots. */
describe.skipIf(why !== null)('a server whose sandboxes live at another Torpor', () => {
  let provider: E2bServer;
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  beforeAll(async () => {
    provider = await e2bServer('http', 'gvisor');
    dataDir = await makeDataDir();
    server = await startTorpor(dataDir.path, { ...provider.env, TORPOR_LOG_LEVEL: 'error' }, 'e2b');
  }, 120_000);
  afterAll(async () => {
    await server?.end();
    await dataDir?.remove();
    await provider?.dispose();
  }, 120_000);

  it('builds a preview that sleeps, wakes for a request, and can be iterated', async () => {
    const { builds, sandboxes } = server.torpor;
    const started = await builds.start({ project_id: 'notes', goal: GOALS.api });
    expect(await follow(server, started.job_id)).toEqual(ALL);
    const asleep = await untilPaused(server, started.job_id);
    const url = asleep.preview_url ?? '';
    expect(await sandboxes.get(sandboxOf(asleep))).toMatchObject({ state: 'paused', runtime: 'e2b' });
    expect(
      await requestPreview(server, url, '/notes', { method: 'POST', body: { text: 'remember' } }),
    ).toMatchObject({
      status: 201,
    });
    await sandboxes.pause(sandboxOf(asleep));

    const second = await builds.start({ project_id: 'notes', goal: 'more', previous_job_id: started.job_id });
    expect((await follow(server, second.job_id)).at(-1)).toBe('ready');
    const next = await untilPaused(server, second.job_id);
    expect((await requestPreview(server, next.preview_url ?? '', '/notes')).text).toContain('remember');
    await requestPreview(server, next.preview_url ?? '', '/notes/1', { method: 'DELETE' });
    expect((await requestPreview(server, url, '/notes')).text).toContain('remember');
  });

  it('forks, snapshots and rolls back a sandbox with its memory', async () => {
    const sandbox = await Sandbox.create({}, { torpor: server.torpor });
    const lives = 'pgrep -x sleep > /dev/null && echo lives';
    await sandbox.start('sleep 1234');
    await sandbox.exec('echo one > a');
    const { id } = await sandbox.snapshot({ name: 'first' });
    await sandbox.exec('echo two > a');
    const [fork] = await sandbox.fork();
    expect((await fork?.exec(`cat a; ${lives}`))?.stdout).toBe('two\nlives\n');
    await sandbox.rollback(id);
    expect((await sandbox.exec(`cat a; ${lives}`)).stdout).toBe('one\nlives\n');
    expect((await fork?.exec('cat a'))?.stdout).toBe('two\n');
  });
});
