import type { BuildState } from '@torpor/protocol';
import { type ApiServer, apiServer } from '@torpor/sdk/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { torporInside } from '../../testing/run-torpor.ts';

const JOB = 'job_aaaaaaaaaaaaaaaaaaaa';
const status = (state: BuildState, more: object = {}) => ({
  job_id: JOB,
  project_id: 'default',
  goal: 'otters',
  runner: 'starter',
  status: state,
  stage_label: state,
  message: '',
  sandbox_id: null,
  workspace_path: null,
  preview_url: state === 'ready' ? 'http://3000-x.sbx.localhost' : null,
  build_version: state === 'ready' ? 'build_v0_1' : null,
  error_message: state === 'failed' ? 'It took too long.' : null,
  debug_id: state === 'failed' ? 'd-1' : null,
  sandbox_expires_at: null,
  sandbox_paused: true,
  snapshot_url: null,
  docs_ready: false,
  created_at: '2026-01-01T00:00:00.000Z',
  updated_at: '2026-01-01T00:00:00.000Z',
  ...more,
});

describe('torpor build', () => {
  let server: ApiServer;
  beforeEach(async () => {
    server = await apiServer();
  });
  afterEach(() => server.close());
  const run = (...args: string[]) =>
    torporInside(args, { TORPOR_URL: server.url, TORPOR_API_KEY: 'k', TORPOR_READ_RETRIES: '0' });

  function buildsThatEnd(state: 'ready' | 'failed') {
    server.answer('POST /api/generation/start', {
      status: 201,
      json: { job_id: JOB, status: 'queued', build_version: 'build_v0_1' },
    });
    server.answer(`GET /api/generation/${JOB}/status`, { json: status(state) });
    server.answer(`GET /api/jobs/${JOB}/events/stream`, {
      raw: (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        const steps: BuildState[] = ['queued', 'starting', state];
        const frames = steps.map((step, index) => {
          const event = {
            type: 'build.stage.started',
            job_id: JOB,
            status: step,
            stage: step,
            stage_label: step,
            message: '',
            timestamp: '2026-01-01T00:00:00.000Z',
          };
          return `id: ${index + 1}\nevent: build.stage.started\ndata: ${JSON.stringify(event)}\n\n`;
        });
        response.end(frames.join(''));
      },
    });
  }

  it('answers with the address of the preview', async () => {
    buildsThatEnd('ready');
    expect(await run('build', 'a', 'page', '--project', 'site')).toMatchObject({
      code: 0,
      stdout: 'http://3000-x.sbx.localhost\n',
    });
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({ project_id: 'site', goal: 'a page' });
  });

  it('exits with 17 when the build failed, and says why', async () => {
    buildsThatEnd('failed');
    const { code, stderr } = await run('build', 'otters');
    expect(code).toBe(17);
    expect(stderr).toContain('It took too long.');
    const json = await run('build', 'otters', '--json');
    expect(json.code).toBe(17);
    expect(JSON.parse(json.stdout)).toMatchObject({ status: 'failed', debug_id: 'd-1' });
  });

  it('need not be waited for', async () => {
    buildsThatEnd('ready');
    expect((await run('build', 'otters', '--no-follow')).stdout).toBe(`${JOB}\n`);
  });

  it('goes on from the last build', async () => {
    buildsThatEnd('ready');
    server.answer('GET /api/jobs', {
      json: { items: [status('ready', { project_id: 'mine' })], nextCursor: null },
    });
    await run('build', 'bluer', '--from', 'last', '--no-follow');
    const sent = server.requests.find(({ method }) => method === 'POST');
    expect(JSON.parse(sent?.body ?? '')).toEqual({
      project_id: 'default',
      goal: 'bluer',
      previous_job_id: JOB,
    });
  });

  it('lists, wakes, puts to sleep, cancels and shows logs', async () => {
    server.answer('GET /api/jobs', { json: { items: [status('ready')], nextCursor: null } });
    expect((await run('build', 'ls')).stdout).toMatch(/job_a+ +default +build_v0_1 +ready, asleep/);
    server.answer(`POST /api/generation/${JOB}/resume`, {
      json: { preview_url: 'http://awake', sandbox_id: 'sbx_aaaaaaaaaaaaaaaaaaaa' },
    });
    expect((await run('build', 'open', 'last')).stdout).toBe('http://awake\n');
    server.answer(`POST /api/generation/${JOB}/snapshot`, {
      json: { job_id: JOB, paused: true, snapshot: { outcome: 'paused' } },
    });
    expect((await run('build', 'snapshot', JOB)).stdout).toContain('sleeps');
    server.answer(`POST /api/generation/${JOB}/cancel`, {
      json: { job_id: JOB, status: 'cancelled', message: 'Build cancelled' },
    });
    expect((await run('build', 'cancel', JOB)).code).toBe(0);
    server.answer(`GET /api/generation/${JOB}/status`, { json: status('ready') });
    const line = { id: 1, ts: 't', source: 'stdout', text: 'hello', phase: 'deps' };
    server.answer(`GET /api/jobs/${JOB}/logs`, { json: { lines: [line], has_more: false, oldest_id: 1 } });
    expect((await run('build', 'logs', JOB)).stdout).toBe('deps stdout hello\n');
  });

  it('says what an expired preview needs', async () => {
    const detail = { message: 'The sandbox has expired.', error_type: 'sandbox_expired' };
    server.answer(`POST /api/generation/${JOB}/resume`, { status: 503, json: { detail, debug_id: 'd' } });
    const { code, stderr } = await run('build', 'resume', JOB, '--json');
    expect(code).toBe(14);
    expect(JSON.parse(stderr).error).toMatchObject({
      code: 'API_ERROR',
      details: { status: 503, code: 'expired' },
    });
  });

  it('wants a goal, and a build that is one', async () => {
    expect((await run('build')).code).toBe(10);
    expect((await run('build', 'logs', 'nonsense')).code).toBe(10);
  });
});
