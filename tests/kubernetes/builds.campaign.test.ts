import type { JobId } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ALL, follow, GOALS, requestPreview, sandboxOf, untilPaused } from '../builds/whole-build.ts';
import { killSandboxes, makeDataDir } from '../crash/torpor-process.ts';
import { type LabServer, startLabServer } from './lab-server.ts';
import { POD_CLUSTERS, type PodCluster } from './pod-cluster.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

describe.each(Object.values(POD_CLUSTERS))('builds on $what', ({ why, start }) => {
  let cluster: PodCluster;
  beforeAll(async () => {
    if (why === null) cluster = await start();
  });
  afterAll(() => cluster?.stop());

  const open = async (runtimes: string) => {
    const dataDir = await makeDataDir();
    const server = await startLabServer(dataDir.path, {
      variables: cluster.variables,
      settings: ['engine.reconcileEveryMs=1s'],
      runtimes,
    });
    return {
      ...server,
      end: async () => {
        await killSandboxes(server.torpor);
        await server.stop();
        await dataDir.remove();
      },
    };
  };
  const logOf = async ({ torpor }: LabServer, id: JobId) =>
    (await torpor.builds.logs(id, { limit: 500 })).lines.map(({ text }) => text).join('\n');
  it.skipIf(why !== null)(
    'that keep nothing run until their pod ends, and are rebuilt from their stored files, which the log says',
    async () => {
      const server = await open('kubernetes');
      const { builds } = server.torpor;
      try {
        const { job_id } = await builds.start({ project_id: 'page', goal: GOALS.page });
        expect(await follow(server, job_id)).toEqual(ALL);
        const status = await builds.status(job_id);
        expect(status).toMatchObject({ sandbox_state: 'running', sandbox_paused: false });
        const url = status.preview_url ?? '';
        const page = await requestPreview(server, url);
        expect(page.status).toBe(200);
        await cluster.deletePods(sandboxOf(status));
        await expect
          .poll(async () => (await builds.status(job_id)).sandbox_state, { timeout: 60_000 })
          .toBe('expired');
        await expect(builds.resume(job_id)).rejects.toMatchObject({ code: 'expired' });
        const again = await builds.rebuild(job_id);
        expect((await follow(server, again.job_id)).at(-1)).toBe('ready');
        expect(await logOf(server, again.job_id)).toContain(`stored files of ${job_id}`);
        const rebuilt = await builds.status(again.job_id);
        expect(rebuilt.build_version).toBe('build_v0_2');
        expect((await requestPreview(server, rebuilt.preview_url ?? '')).text).toBe(page.text);
      } finally {
        await server.end();
      }
    },
  );

  it.skipIf(why !== null)(
    'that keep their files are paused, and go on from a request with what the application wrote',
    async () => {
      const server = await open('agent-sandbox');
      const { builds } = server.torpor;
      try {
        const { job_id } = await builds.start({ project_id: 'notes', goal: GOALS.api });
        expect(await follow(server, job_id)).toEqual(ALL);
        const status = await untilPaused(server, job_id);
        expect(status).toMatchObject({ sandbox_state: 'paused', sandbox_paused: true });
        const url = status.preview_url ?? '';
        const body = { text: 'remember' };
        expect((await requestPreview(server, url, '/notes', { method: 'POST', body })).status).toBe(201);
        expect(await builds.snapshot(job_id)).toMatchObject({ snapshot: { outcome: 'paused' } });
        expect((await requestPreview(server, url, '/notes')).text).toContain('remember');
        // A pod that is deleted behind the server's back takes no file along.
        await cluster.deletePods(sandboxOf(status));
        await expect
          .poll(async () => (await builds.status(job_id)).sandbox_state, { timeout: 60_000 })
          .toBe('paused');
        expect((await requestPreview(server, url, '/notes')).text).toContain('remember');
      } finally {
        await server.end();
      }
    },
  );
});
