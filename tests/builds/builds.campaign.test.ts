import { setTimeout as delay } from 'node:timers/promises';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findChromium, openBrowser } from '../browser/chromium.ts';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { ALL, follow, GOALS, sandboxOf, treeDigest, untilAsleep, visit } from './whole-build.ts';

/** `process` where gVisor cannot run. */
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
    '%s: built, asleep, opened, resumed, snapshot, edited (R1, R7, R24, R27, R41, R43, R47)',
    async (starter, goal) => {
      const { builds, sandboxes } = server.torpor;
      const { job_id } = await builds.start({ project_id: starter, goal });
      expect(await follow(server, job_id)).toEqual(ALL);
      const status = await untilAsleep(server, job_id);
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
      expect((await visit(server, url)).status).toBe(200);
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
        expect((await visit(server, url)).status).toBe(200);
      }
    },
  );
});

describe(`a server that is killed during a build on ${runtime} (R18, R20)`, { timeout: PATIENCE }, () => {
  it.each(['queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready'] as const)(
    'in %s',
    async (stage) => {
      const dataDir = await makeDataDir();
      let server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
      try {
        const { job_id } = await server.torpor.builds.start({ project_id: 'p', goal: GOALS.page });
        for await (const { status } of server.torpor.builds.events(job_id)) if (status === stage) break;
        // Somewhere within the stage.
        await delay(Math.random() * 300);
        await server.kill('SIGKILL');
        server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
        const states = await follow(server, job_id);
        expect(['ready', 'failed']).toContain(states.at(-1));
        const status = await untilAsleep(server, job_id);
        const left: string[] = [];
        for await (const one of server.torpor.sandboxes.list()) {
          if (!['killed', 'failed', 'lost'].includes(one.state)) left.push(one.id);
        }
        expect(left).toEqual(status.sandbox_id === null ? [] : [status.sandbox_id]);
        if (status.status === 'ready')
          expect((await visit(server, status.preview_url ?? '')).status).toBe(200);
        // The slot is free: another build goes through.
        const next = await server.torpor.builds.start({ project_id: 'p', goal: GOALS.api });
        expect((await follow(server, next.job_id)).at(-1)).toBe('ready');
      } finally {
        await server.end();
        await dataDir.remove();
      }
    },
  );
});
