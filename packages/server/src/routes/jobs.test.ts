import type { Builds } from '@torpor/builds';
import { FakeProvider } from '@torpor/builds/testing';
import { createEngine, type EngineDependencies, systemClock } from '@torpor/engine';
import type { JobId, SandboxId, TrackedJobView } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { testBuilds } from '../../testing/test-builds.ts';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';
import { agentProcesses } from '../sandbox/agent-processes.ts';

let server: TestServer;
let builds: Builds;
beforeAll(async () => {
  server = await testServer({
    engineSettings: { jobWatchDelayMs: 5 },
    wrapApp: (ctx) => {
      builds = testBuilds(ctx, new FakeProvider(systemClock));
      return { builds };
    },
  });
  await builds.start();
});
afterAll(async () => {
  await builds.stop();
  await server.dispose();
});

const start = async (id: SandboxId, command: string): Promise<JobId> => {
  const body = { command, background: true };
  return (await server.ask('POST', `/v1/sandboxes/${id}/exec`, { body })).json().jobId;
};
const get = async (id: JobId): Promise<TrackedJobView> => (await server.ask('GET', `/v1/jobs/${id}`)).json();
const end = (id: JobId, query = '') => server.ask('DELETE', `/v1/jobs/${id}${query}`);
const verb = (id: SandboxId, name: string, body = {}) =>
  server.ask('POST', `/v1/sandboxes/${id}/${name}`, { body });
const typesOf = async (id: SandboxId): Promise<string[]> => {
  const { items } = (await server.ask('GET', `/v1/sandboxes/${id}/events`)).json();
  return items.map(({ type }: { type: string }) => type).filter((type: string) => type.startsWith('job.'));
};

describe('a job', () => {
  it('has an id, runs, and is completed with its exit code when its process ends (R98, R110)', async () => {
    const sandboxId = await server.create();
    const id = await start(sandboxId, 'until [ -e enough ]; do sleep 0.05; done; exit 3');
    expect(id).toMatch(/^job_[a-z0-9]{20}$/);
    expect(await get(id)).toMatchObject({ id, kind: 'process', sandboxId, state: 'running', exitCode: null });
    await verb(sandboxId, 'exec', { command: 'touch enough' });
    await expect.poll(() => get(id)).toMatchObject({ state: 'completed', exitCode: 3, signal: null });
    expect(await typesOf(sandboxId)).toEqual(['job.created', 'job.completed']);
  });

  it('is suspended while its sandbox is paused, in the list and by its id (R98)', async () => {
    const sandboxId = await server.create();
    const id = await start(sandboxId, 'sleep 1000');
    await verb(sandboxId, 'pause');
    expect(await get(id)).toMatchObject({ state: 'suspended', endedAt: null });
    const list = async (query: string) => {
      const page = (await server.ask('GET', `/v1/sandboxes/${sandboxId}/jobs${query}`)).json();
      return page.items.map((job: TrackedJobView) => [job.id, job.state]);
    };
    expect(await list('')).toEqual([[id, 'suspended']]);
    expect(await list('?state=suspended,lost')).toEqual([[id, 'suspended']]);
    expect(await list('?state=running')).toEqual([]);
    const wrong = await server.ask('GET', `/v1/sandboxes/${sandboxId}/jobs?state=asleep`);
    expect(errorIn(wrong).code).toBe('invalid_request');
    expect((await server.ask('GET', `/v1/sandboxes/${sandboxId}`)).json().state).toBe('paused');
  });

  it('is lost with a reason when only files were kept, and when its sandbox is killed (R98)', async () => {
    const sandboxId = await server.create({ services: [{ name: 'web', command: 'serve' }] });
    const [service] = (await server.ask('GET', `/v1/sandboxes/${sandboxId}`)).json().services;
    const id = await start(sandboxId, 'sleep 1000');
    await verb(sandboxId, 'pause', { mode: 'files' });
    const lost = { reason: 'files_only_pause', message: expect.stringMatching(/only its files were kept/) };
    expect(await get(id)).toMatchObject({ state: 'lost', lost });
    await verb(sandboxId, 'resume');
    expect((await typesOf(sandboxId)).at(-1)).toBe('job.restarted');
    expect(await get(service.jobId)).toMatchObject({ kind: 'service', name: 'web', restarts: 1 });
    const other = await start(sandboxId, 'sleep 1000');
    await server.ask('DELETE', `/v1/sandboxes/${sandboxId}`);
    expect(await get(other)).toMatchObject({ state: 'lost', lost: { reason: 'sandbox_killed' } });
  });

  it('is completed by the next server when it ended while no server ran (R108)', async () => {
    let engineParts: EngineDependencies | undefined;
    const unwatched = await testServer({
      engineSettings: { jobWatchDelayMs: 3_600_000 },
      wrap: (ctx) => {
        engineParts = ctx;
        return {};
      },
    });
    try {
      const body = { command: 'exit 4', background: true };
      const sandboxId = await unwatched.create();
      const { jobId } = (await unwatched.ask('POST', `/v1/sandboxes/${sandboxId}/exec`, { body })).json();
      const agent = await unwatched.world.engine.agent('default', sandboxId);
      await agentProcesses.nextEnd(agent, [jobId], new AbortController().signal);
      expect((await unwatched.ask('GET', `/v1/jobs/${jobId}`)).json()).toMatchObject({ state: 'running' });
      // Another server on the same database and the same sandboxes, as after a restart.
      const next = createEngine({ ...(engineParts as EngineDependencies), serverId: 'the-next' });
      await next.start({ rounds: false });
      expect(await next.job('default', jobId)).toMatchObject({ state: 'completed', exitCode: 4 });
      await next.stop();
    } finally {
      await unwatched.dispose();
    }
  });

  it('cannot be seen by another organisation (R104)', async () => {
    const id = await start(await server.create(), 'sleep 1000');
    const key = server.keys.other;
    for (const method of ['GET', 'DELETE'] as const) {
      const response = await server.ask(method, `/v1/jobs/${id}`, { key });
      expect([response.statusCode, errorIn(response).code]).toEqual([404, 'not_found']);
    }
    expect(await get(id)).toMatchObject({ state: 'running' });
  });

  it('has its output at its id', async () => {
    const sandboxId = await server.create();
    const id = await start(sandboxId, 'echo said; sleep 1000');
    const path = `/v1/sandboxes/${sandboxId}/processes/${id}/output`;
    await expect.poll(async () => (await server.ask('GET', path)).body).toContain('said');
  });
});

describe('ending a job', () => {
  it('sends SIGTERM, and gives the same answer when repeated (R98)', async () => {
    const sandboxId = await server.create();
    const id = await start(sandboxId, 'sleep 1000');
    const ended = await end(id);
    expect([ended.statusCode, ended.json()]).toEqual([
      200,
      expect.objectContaining({ id, state: 'completed', exitCode: 143, signal: 'SIGTERM' }),
    ]);
    expect((await end(id)).json()).toEqual(ended.json());
    expect(await typesOf(sandboxId)).toEqual(['job.created', 'job.completed']);
  });

  it('sends SIGKILL to a process that does not end within the grace period (R98)', async () => {
    const sandboxId = await server.create();
    const id = await start(sandboxId, 'trap "" TERM; echo deaf; while :; do sleep 0.05; done');
    const path = `/v1/sandboxes/${sandboxId}/processes/${id}/output`;
    await expect.poll(async () => (await server.ask('GET', path)).body).toContain('deaf');
    expect((await end(id, '?graceSeconds=1')).json()).toMatchObject({
      state: 'completed',
      signal: 'SIGKILL',
    });
    const now = await start(sandboxId, 'sleep 1000');
    expect((await end(now, '?graceSeconds=0')).json()).toMatchObject({ signal: 'SIGKILL', exitCode: 137 });
    expect(errorIn(await end(now, '?graceSeconds=61')).code).toBe('invalid_request');
  });

  it('wakes a paused sandbox, unless its autoResume is off (R98)', async () => {
    const sleeper = await server.create({ autoResume: false });
    const kept = await start(sleeper, 'sleep 1000');
    await verb(sleeper, 'pause');
    const refused = await end(kept);
    expect([refused.statusCode, errorIn(refused)]).toMatchObject([
      409,
      { code: 'conflict', hint: expect.stringMatching(/autoResume/) },
    ]);
    expect(await get(kept)).toMatchObject({ state: 'suspended' });
    const light = await server.create();
    const id = await start(light, 'sleep 1000');
    await verb(light, 'pause');
    // The agents of this test server do not survive a pause, so the process is not found.
    expect((await end(id)).json()).toMatchObject({ state: 'lost', lost: { reason: 'not_found' } });
    expect((await server.ask('GET', `/v1/sandboxes/${light}`)).json().state).toBe('running');
  });

  it('is done once under one idempotency key', async () => {
    const id = await start(await server.create(), 'sleep 1000');
    const headers = { 'idempotency-key': 'end-it' };
    const first = await server.ask('DELETE', `/v1/jobs/${id}`, { headers });
    expect((await server.ask('DELETE', `/v1/jobs/${id}`, { headers })).json()).toEqual(first.json());
  });
});

describe('ids that start with job_', () => {
  it('name builds and tracked jobs, and each API says which (R110)', async () => {
    const body = { project_id: 'site', goal: 'a site' };
    const { job_id: build } = (await server.ask('POST', '/api/generation/start', { body })).json();
    expect(await get(build)).toMatchObject({
      id: build,
      kind: 'build',
      status: expect.any(String),
      url: `/api/generation/${build}/status`,
    });
    const refused = await end(build);
    expect([refused.statusCode, errorIn(refused)]).toMatchObject([
      409,
      { code: 'conflict', hint: expect.stringMatching(/cancel/) },
    ]);
    const sandboxId = await server.create();
    const id = await start(sandboxId, 'sleep 1000');
    for (const path of [`/api/generation/${id}/status`, `/api/jobs/${id}`]) {
      const answer = await server.ask('GET', path);
      expect([answer.statusCode, answer.json().detail]).toEqual([
        404,
        `Job ${id} is a background process of sandbox ${sandboxId}, not a build: see GET /v1/jobs/${id}.`,
      ]);
    }
  });

  it('that name nothing are not found', async () => {
    const nothing = `job_${'z'.repeat(20)}` as const;
    for (const response of [
      await server.ask('GET', `/v1/jobs/${nothing}`),
      await end(nothing),
      await server.ask('GET', '/v1/sandboxes/sbx_zzzzzzzzzzzzzzzzzzzz/jobs'),
    ]) {
      expect([response.statusCode, errorIn(response).code]).toEqual([404, 'not_found']);
    }
    expect((await server.ask('GET', '/v1/jobs/nonsense')).statusCode).toBe(404);
  });
});
