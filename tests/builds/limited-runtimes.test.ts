import { createServer } from 'node:net';
import { bundleAgent } from '@torpor/agent';
import { noFaults, type Runtime } from '@torpor/engine';
import type { Capabilities } from '@torpor/protocol';
import { processRuntime } from '@torpor/runtime-process';
import { type BuildEvent, type JobId, Torpor } from '@torpor/sdk';
import { openLog, type RunningServer, readConfig, startServer } from '@torpor/server';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { killSandboxes, makeDataDir } from '../crash/torpor-process.ts';
import { ALL, GOALS, requestPreview, sandboxOf } from './whole-build.ts';

const API_KEY = 'c0ffee42'.repeat(8);

/** Answers "hello", and exits on /exit. */
const APP = `require("http").createServer((request, answer) => {
  if (request.url === "/exit") process.exit(1);
  answer.end("hello");
}).listen(process.env.PORT);`;
const RUNNER = `printf '{"scripts":{"start":"node s.js"}}' > package.json && printf '%s' '${APP}' > s.js`;

/** The process runtime with reduced capabilities. */
function limited(runtime: Runtime, limits: Partial<Capabilities>): Runtime {
  return new Proxy(runtime, {
    get: (target, name) => {
      if (name === 'capabilities') return () => ({ ...target.capabilities(), ...limits });
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** Without a pause, the application must listen on the port of the build itself. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function startLimited(limits: Partial<Capabilities>) {
  const dataDir = await makeDataDir();
  const argv = ['--port', '0', '--data-dir', dataDir.path, '--runtime', 'process'];
  const env = { TORPOR_API_KEY: API_KEY, TORPOR_RUNNER_COMMAND: RUNNER };
  const config = await readConfig(argv, env, dataDir.path);
  const server: RunningServer = await startServer(config, {
    log: openLog({ level: 'silent' }),
    faults: noFaults,
    choose: async ({ dataDir }, store, clock) => {
      const sealedPath = (id: Parameters<typeof store.path>[0]) => store.path(id);
      const runtime = await processRuntime({ dataDir, agentDir: await bundleAgent(), clock, sealedPath });
      return { runtime: limited(runtime, limits), limits: [] };
    },
  });
  const torpor = new Torpor({ url: server.url, apiKey: API_KEY });
  const end = async () => {
    await killSandboxes(torpor);
    await server.stop();
    await dataDir.remove();
  };
  return { url: server.url, torpor, end };
}

describe('builds on a runtime with fewer capabilities', { timeout: 120_000 }, () => {
  let server: Awaited<ReturnType<typeof startLimited>>;
  const eventsOf = async (id: JobId) => {
    const events: BuildEvent[] = [];
    for await (const event of server.torpor.builds.events(id)) events.push(event);
    return events;
  };
  const statesOf = (events: readonly BuildEvent[]) =>
    events.filter(({ type }) => type === 'build.stage.started').map(({ status }) => status);
  const logOf = async (id: JobId) =>
    (await server.torpor.builds.logs(id, { limit: 500 })).lines.map(({ text }) => text).join('\n');

  describe('neither pause nor fork', () => {
    beforeAll(async () => {
      server = await startLimited({ pause: 'none', fork: false, snapshotWhileRunning: false });
    }, 120_000);
    afterAll(() => server?.end(), 60_000);

    it('become ready and run until their lifetime ends; then only a rebuild helps (R26, R34, R41, R48, R49)', async () => {
      const { builds, sandboxes } = server.torpor;
      const port = await freePort();
      const { job_id } = await builds.start({ project_id: 'site', goal: 'g', port, runner: 'command' });
      const events = await eventsOf(job_id);
      expect(statesOf(events)).toEqual(ALL);
      expect(events.at(-1)).toMatchObject({ type: 'snapshot.failed', status: 'ready' });
      expect(events.at(-1)?.message).toContain('cannot pause');
      expect(await logOf(job_id)).toContain('The runtime cannot pause');
      const status = await builds.status(job_id);
      expect(status).toMatchObject({
        status: 'ready',
        sandbox_state: 'running',
        sandbox_paused: false,
        sandbox_expires_at: expect.any(String),
      });
      const url = status.preview_url ?? '';
      expect((await requestPreview(server, url)).text).toBe('hello');
      expect(await builds.snapshot(job_id)).toMatchObject({ paused: true, snapshot: { outcome: 'failed' } });
      expect(await builds.status(job_id)).toMatchObject({ sandbox_paused: false, status: 'ready' });

      // A resume connects to the running sandbox and restarts a dev server that has ended (R27, R28, R45).
      const id = sandboxOf(status);
      expect(await builds.resume(job_id)).toEqual({ preview_url: url, sandbox_id: id });
      const ask = (path: string) =>
        sandboxes.exec(id, `node -e 'fetch("http://127.0.0.1:${port}${path}").catch(() => process.exit(7))'`);
      expect((await ask('/exit')).exitCode).toBe(7);
      expect((await ask('/')).exitCode).toBe(7);
      expect(await builds.resume(job_id)).toEqual({ preview_url: url, sandbox_id: id });
      expect((await requestPreview(server, url)).text).toBe('hello');

      await sandboxes.kill(id);
      expect(await builds.status(job_id)).toMatchObject({ sandbox_state: 'expired', expired: true });
      await expect(builds.resume(job_id)).rejects.toMatchObject({
        code: 'expired',
        details: { error_type: 'sandbox_expired', platform_code: 'killed' },
      });
      const again = await builds.rebuild(job_id);
      expect(statesOf(await eventsOf(again.job_id)).at(-1)).toBe('ready');
      expect(await logOf(again.job_id)).toContain(`stored files of ${job_id}`);
      const rebuilt = await builds.status(again.job_id);
      expect(rebuilt.build_version).toBe('build_v0_2');
      expect((await requestPreview(server, rebuilt.preview_url ?? '')).text).toBe('hello');
    });
  });

  describe('pause that keeps files, and no fork', () => {
    beforeAll(async () => {
      server = await startLimited({ pause: 'files', fork: false });
    }, 120_000);
    afterAll(() => server?.end(), 60_000);

    it('are paused, resume on a request and can be iterated, and say what is lost (R7, R24, R27, R47)', async () => {
      const { builds, sandboxes } = server.torpor;
      const { job_id } = await builds.start({ project_id: 'notes', goal: GOALS.api });
      const events = await eventsOf(job_id);
      expect(statesOf(events)).toEqual(ALL);
      expect(events.at(-1)?.type).toBe('snapshot.updated');
      const status = await builds.status(job_id);
      expect(status).toMatchObject({ sandbox_state: 'paused', sandbox_paused: true });
      const url = status.preview_url ?? '';
      // The dev server is a declared service, so a request is enough to start it.
      const added = await requestPreview(server, url, '/notes', {
        method: 'POST',
        body: { text: 'remember' },
      });
      expect(added.status).toBe(201);
      expect(await builds.snapshot(job_id)).toMatchObject({ snapshot: { outcome: 'paused' } });
      expect(await builds.resume(job_id)).toEqual({ preview_url: url, sandbox_id: status.sandbox_id });
      expect((await requestPreview(server, url, '/notes')).text).toContain('remember');
      const left: string[] = [];
      for await (const one of sandboxes.list({ metadata: { 'torpor.build': job_id } })) left.push(one.id);
      expect(left).toEqual([status.sandbox_id]);

      const next = await builds.start({ project_id: 'notes', goal: 'more', previous_job_id: job_id });
      expect(statesOf(await eventsOf(next.job_id)).at(-1)).toBe('ready');
      expect(await logOf(next.job_id)).toContain('The runtime cannot fork build_v0_1');
      expect((await builds.status(next.job_id)).build_version).toBe('build_v0_2');
      expect((await requestPreview(server, url, '/notes')).text).toContain('remember');
    });
  });
});
