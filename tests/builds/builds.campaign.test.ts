import { setTimeout as delay } from 'node:timers/promises';
import { BUILD_POINTS } from '@torpor/builds';
import type { BuildStatus, JobId } from '@torpor/sdk';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findChromium, openBrowser } from '../browser/chromium.ts';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { ALL, follow, GOALS, requestPreview, sandboxOf, treeDigest, untilPaused } from './whole-build.ts';

/** The process runtime where gVisor cannot run. */
const runtime = process.env['TORPOR_RUNTIME'] === 'process' ? 'process' : 'gvisor';
const chromium = findChromium();
const PATIENCE = 600_000;

describe(`whole builds on ${runtime}`, { timeout: PATIENCE }, () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  let browser: Browser | undefined;
  beforeAll(async () => {
    dataDir = await makeDataDir();
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
    browser = chromium === undefined ? undefined : await openBrowser(chromium);
  }, PATIENCE);
  afterAll(async () => {
    await browser?.close();
    await server?.end();
    await dataDir?.remove();
  }, PATIENCE);

  it.each(Object.entries(GOALS))(
    '%s: built, paused, opened, resumed, snapshot, edited (R1, R7, R24, R27, R41, R43, R47)',
    async (starter, goal) => {
      const { builds, sandboxes } = server.torpor;
      const { job_id } = await builds.start({ project_id: starter, goal });
      expect(await follow(server, job_id)).toEqual(ALL);
      const status = await untilPaused(server, job_id);
      const id = sandboxOf(status);
      const url = status.preview_url ?? '';
      expect((await sandboxes.get(id)).state).toBe('paused');

      if (browser !== undefined) {
        const page = await browser.newPage();
        await page.goto(url, { timeout: 60_000 });
        await page.getByRole('heading', { name: goal }).waitFor({ timeout: 60_000 });
        if (starter === 'dashboard')
          await page.getByText('live', { exact: true }).waitFor({ timeout: 30_000 });
        await page.close();
      }
      expect((await requestPreview(server, url)).status).toBe(200);
      expect(await builds.resume(job_id)).toEqual({ preview_url: url, sandbox_id: id });
      for (let i = 0; i < 10; i++) {
        expect(await builds.snapshot(job_id)).toMatchObject({ job_id, paused: true });
      }
      const { generation } = await sandboxes.get(id);
      await builds.snapshot(job_id);
      expect((await sandboxes.get(id)).generation).toBe(generation);

      for (let cycle = 1; cycle <= 3; cycle++) {
        await builds.resume(job_id);
        await sandboxes.exec(
          id,
          `mkdir -p project/edits/${cycle} && head -c 100000 /dev/urandom > project/edits/${cycle}/file`,
        );
        const before = await treeDigest(server, id);
        expect((await builds.snapshot(job_id)).snapshot.outcome).toBe('paused');
        expect((await builds.status(job_id)).sandbox_expires_at).toBeNull();
        await builds.resume(job_id);
        expect(await treeDigest(server, id)).toBe(before);
        expect((await requestPreview(server, url)).status).toBe(200);
      }
    },
  );
});

const QUIET = { TORPOR_LOG_LEVEL: 'error' };

/** Fails in checks, when the build has sandboxes. */
const BROKEN = {
  TORPOR_RUNNER_PLACE: 'host',
  TORPOR_RUNNER_COMMAND: `printf '{"scripts":{"start":"exit 3"}}' > package.json`,
};

/** Checks the state after the next server has finished: no sandbox but the preview, and free slots. */
async function nothingIsLeft(server: TorporProcess, id: JobId): Promise<BuildStatus> {
  const status = await untilPaused(server, id);
  const left = async () => {
    const ids: string[] = [];
    for await (const one of server.torpor.sandboxes.list()) {
      if (!['killed', 'failed', 'lost'].includes(one.state)) ids.push(one.id);
    }
    return ids;
  };
  // The sandboxes of a failed build are killed in rounds.
  const expected = status.sandbox_id === null ? [] : [status.sandbox_id];
  await expect.poll(left, { timeout: 60_000, interval: 500 }).toEqual(expected);
  if (status.status === 'ready')
    expect((await requestPreview(server, status.preview_url ?? '')).status).toBe(200);
  const next = await server.torpor.builds.start({ project_id: 'p', goal: GOALS.api });
  expect((await follow(server, next.job_id)).at(-1)).toBe('ready');
  return status;
}

describe(`a server that is killed during a build on ${runtime} (R18, R20)`, { timeout: PATIENCE }, () => {
  const onceDead = async (
    env: Record<string, string>,
    begin: (server: TorporProcess) => Promise<JobId>,
    ending: (next: TorporProcess, id: JobId) => Promise<void>,
  ) => {
    const dataDir = await makeDataDir();
    let server = await startTorpor(dataDir.path, { ...QUIET, ...env }, runtime);
    try {
      const id = await begin(server);
      expect(await server.ended).toBe('SIGKILL');
      server = await startTorpor(dataDir.path, { ...QUIET, ...env, TORPOR_FAULT: '' }, runtime);
      await ending(server, id);
    } finally {
      await server.end();
      await dataDir.remove();
    }
  };
  const dieAt = (point: string) => ({ TORPOR_FAULTS: '1', TORPOR_FAULT: `build.${point}` });
  const start = async ({ torpor }: TorporProcess, more: object = {}) =>
    (await torpor.builds.start({ project_id: 'p', goal: GOALS.page, ...more })).job_id;

  const ways = BUILD_POINTS.slice(0, BUILD_POINTS.indexOf('failing'));
  it.each(ways)('at "%s": the build is continued and becomes ready', (point) =>
    onceDead(dieAt(point), start, async (next, id) => {
      expect((await follow(next, id)).at(-1)).toBe('ready');
      expect((await nothingIsLeft(next, id)).status).toBe('ready');
    }),
  );

  it.each(['failing', 'failed'])('at "%s": the build fails once', (point) =>
    onceDead(
      { ...BROKEN, ...dieAt(point) },
      (server) => start(server, { runner: 'command' }),
      async (next, id) => {
        const states = await follow(next, id);
        expect(states.filter((state) => state === 'failed')).toHaveLength(1);
        expect((await nothingIsLeft(next, id)).status).toBe('failed');
      },
    ),
  );

  it('right after a cancel: the build has failed, and nothing continues', () =>
    onceDead(
      dieAt('cancelled'),
      async (server) => {
        const id = await start(server);
        for await (const { status } of server.torpor.builds.events(id)) if (status === 'deps') break;
        await server.torpor.builds.cancel(id).catch(() => {});
        return id;
      },
      async (next, id) => {
        expect((await nothingIsLeft(next, id)).status).toBe('failed');
        expect((await next.torpor.builds.status(id)).message).toBe('Cancelled by user');
      },
    ));

  it.each(['queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready'] as const)(
    'somewhere from %s on: it ends, well or not',
    (stage) =>
      onceDead(
        {},
        async (server) => {
          const id = await start(server);
          for await (const { status } of server.torpor.builds.events(id)) if (status === stage) break;
          await delay(Math.random() * 300);
          await server.kill('SIGKILL');
          return id;
        },
        async (next, id) => {
          expect(['ready', 'failed']).toContain((await follow(next, id)).at(-1));
          await nothingIsLeft(next, id);
        },
      ),
  );
});
