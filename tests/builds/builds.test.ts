import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { ALL, follow, GOALS, requestPreview, sandboxOf, treeDigest, untilPaused } from './whole-build.ts';

describe('a whole build', { timeout: 120_000 }, () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  beforeAll(async () => {
    dataDir = await makeDataDir();
    const env = {
      TORPOR_LOG_LEVEL: 'error',
      TORPOR_RUNNER_COMMAND: `cat > page.txt && printf '{"scripts":{"start":"node s.js"}}' > package.json &&
        printf 'require("http").createServer((q, r) => r.end(require("fs").readFileSync("page.txt"))).listen(process.env.PORT)' > s.js`,
    };
    server = await startTorpor(dataDir.path, env);
  }, 120_000);
  afterAll(async () => {
    await server?.end();
    await dataDir?.remove();
  });

  it('leads from a goal to a paused preview that a request resumes and that can be iterated (R1, R7, R24, R27)', async () => {
    const { builds, sandboxes } = server.torpor;
    const started = await builds.start({ project_id: 'notes', goal: GOALS.api });
    expect(await follow(server, started.job_id)).toEqual(ALL);
    const paused = await untilPaused(server, started.job_id);
    const url = paused.preview_url ?? '';
    expect((await sandboxes.get(sandboxOf(paused))).state).toBe('paused');
    const added = await requestPreview(server, url, '/notes', { method: 'POST', body: { text: 'remember' } });
    expect(added).toMatchObject({ status: 201 });
    expect(await builds.resume(started.job_id)).toEqual({ preview_url: url, sandbox_id: paused.sandbox_id });

    const second = await builds.start({ project_id: 'notes', goal: 'more', previous_job_id: started.job_id });
    expect((await follow(server, second.job_id)).at(-1)).toBe('ready');
    const next = await untilPaused(server, second.job_id);
    expect(next.build_version).toBe('build_v0_2');
    // The fork has the files that the first build wrote while it ran; from here on the two are independent.
    expect((await requestPreview(server, next.preview_url ?? '', '/notes')).text).toContain('remember');
    await requestPreview(server, next.preview_url ?? '', '/notes/1', { method: 'DELETE' });
    expect((await requestPreview(server, url, '/notes')).text).toContain('remember');
  });

  it('keeps its files over three pauses with changes in between (R45, R47)', async () => {
    const { builds, sandboxes } = server.torpor;
    const { job_id } = await builds.start({ project_id: 'edits', goal: GOALS.page });
    await follow(server, job_id);
    const id = sandboxOf(await untilPaused(server, job_id));
    for (let cycle = 1; cycle <= 3; cycle++) {
      await builds.resume(job_id);
      await sandboxes.exec(id, `mkdir -p project/edits && echo ${cycle} > project/edits/${cycle}`);
      const before = await treeDigest(server, id);
      expect((await builds.snapshot(job_id)).snapshot.outcome).toBe('paused');
      await builds.resume(job_id);
      expect(await treeDigest(server, id)).toBe(before);
    }
    expect((await sandboxes.exec(id, 'ls project/edits')).stdout).toBe('1\n2\n3\n');
  });

  it('offers a rebuild when the checkpoint of a preview is damaged (R7, R34, R36, R48, R49)', async () => {
    const { builds, sandboxes } = server.torpor;
    const { job_id } = await builds.start({ project_id: 'damaged', goal: GOALS.page });
    await follow(server, job_id);
    const paused = await untilPaused(server, job_id);
    const { checkpointId } = await sandboxes.get(sandboxOf(paused));
    const kept = join(dataDir.path, 'checkpoints');
    const places = (await readdir(kept, { recursive: true })).filter((path) =>
      path.endsWith(String(checkpointId)),
    );
    expect(places.length).toBeGreaterThan(0);
    for (const place of places) await rm(join(kept, place), { recursive: true });
    const failed = await builds.resume(job_id).catch((thrown: unknown) => thrown);
    expect(failed).toMatchObject({
      code: 'expired',
      retryable: false,
      details: { error_type: 'sandbox_expired', platform_message: expect.any(String) },
    });
    expect(['checkpoint_missing', 'checkpoint_corrupt', 'lost']).toContain(
      (failed as { details: { platform_code: string } }).details.platform_code,
    );
    const status = await builds.status(job_id);
    expect(status).toMatchObject({ sandbox_state: 'expired', expired: true, sandbox_paused: false });
    const answer = await fetch(`${server.url}/api/generation/${job_id}/preview-check`, {
      headers: { authorization: `Bearer ${server.apiKey}` },
    });
    expect(await answer.json()).toMatchObject({ embeddable: false });
    const again = await builds.rebuild(job_id);
    expect((await follow(server, again.job_id)).at(-1)).toBe('ready');
    expect((await builds.status(again.job_id)).build_version).toBe('build_v0_2');
  });

  it('runs any program as a runner, in a sandbox that is killed afterwards (R5, R6)', async () => {
    const { builds, sandboxes } = server.torpor;
    const { job_id } = await builds.start({ project_id: 'any', goal: 'hello otters', runner: 'command' });
    const last = (await follow(server, job_id)).at(-1);
    expect(last, JSON.stringify(await builds.status(job_id))).toBe('ready');
    const status = await untilPaused(server, job_id);
    expect((await requestPreview(server, status.preview_url ?? '')).text).toBe('hello otters');
    const left: string[] = [];
    for await (const one of sandboxes.list({ metadata: { 'torpor.build': job_id } })) {
      if (one.state !== 'killed') left.push(one.id);
    }
    expect(left).toEqual([status.sandbox_id]);
  });
});
