import type { BuildState, BuildStatus } from '@torpor/protocol';
import { type ApiServer, apiServer } from '@torpor/sdk/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { torporInProcess } from '../../testing/run-torpor.ts';
import { previewNote } from '../build-views.ts';

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
  sandbox_state: null,
  sandbox_reason: null,
  expired: false,
  files_expired: false,
  logs_expired: false,
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
    torporInProcess(args, { TORPOR_URL: server.url, TORPOR_API_KEY: 'k', TORPOR_READ_RETRIES: '0' });

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

  it('prints the address of the preview', async () => {
    buildsThatEnd('ready');
    expect(await run('build', 'a', 'page', '--project', 'site')).toMatchObject({
      code: 0,
      stdout: 'http://3000-x.sbx.localhost\n',
    });
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({ project_id: 'site', goal: 'a page' });
  });

  it('exits with 17 and prints the reason when the build failed', async () => {
    buildsThatEnd('failed');
    const { code, stderr } = await run('build', 'otters');
    expect(code).toBe(17);
    expect(stderr).toContain('It took too long.');
    const json = await run('build', 'otters', '--json');
    expect(json.code).toBe(17);
    expect(JSON.parse(json.stdout)).toMatchObject({ status: 'failed', debug_id: 'd-1' });
  });

  it('does not wait with --no-follow', async () => {
    buildsThatEnd('ready');
    expect((await run('build', 'otters', '--no-follow')).stdout).toBe(`${JOB}\n`);
  });

  it('waits with --follow', async () => {
    buildsThatEnd('ready');
    expect(await run('build', 'otters', '--follow')).toMatchObject({
      code: 0,
      stdout: 'http://3000-x.sbx.localhost\n',
    });
  });

  it('does not wait for a build that is scheduled for tomorrow', async () => {
    server.answer('POST /api/generation/start', {
      status: 201,
      json: { job_id: JOB, status: 'scheduled', build_version: 'build_v0_1' },
    });
    expect(await run('build', 'otters')).toMatchObject({ code: 0, stdout: `${JOB}\n` });
  });

  it('continues from the last ready build, also when later builds failed', async () => {
    buildsThatEnd('ready');
    const other = { job_id: 'job_bbbbbbbbbbbbbbbbbbbb' };
    server.answer('GET /api/jobs', {
      json: {
        items: [
          status('failed', other),
          status('ready', { ...other, project_id: 'elsewhere' }),
          status('ready'),
        ],
        nextCursor: null,
      },
    });
    await run('build', 'bluer', '--from', 'last', '--project', 'default', '--no-follow');
    const sent = server.requests.find(({ method }) => method === 'POST');
    expect(JSON.parse(sent?.body ?? '')).toMatchObject({ project_id: 'default', previous_job_id: JOB });
    server.answer('GET /api/jobs', { json: { items: [status('failed')], nextCursor: null } });
    expect(await run('build', 'open', 'last')).toMatchObject({
      code: 12,
      stderr: expect.stringContaining('No build is ready yet'),
    });
  });

  it('continues in the project of the previous build', async () => {
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

  it('lists, wakes, pauses, cancels and shows logs', async () => {
    const preview = { sandbox_id: 'sbx_aaaaaaaaaaaaaaaaaaaa', sandbox_state: 'paused' };
    server.answer('GET /api/jobs', { json: { items: [status('ready', preview)], nextCursor: null } });
    expect((await run('build', 'ls')).stdout).toMatch(
      /job_a+ +default +build_v0_1 +ready, asleep .* otters /,
    );
    server.answer(`POST /api/generation/${JOB}/resume`, {
      json: { preview_url: 'http://awake', sandbox_id: 'sbx_aaaaaaaaaaaaaaaaaaaa' },
    });
    expect((await run('build', 'open', 'last')).stdout).toBe('http://awake\n');
    server.answer(`POST /api/generation/${JOB}/snapshot`, {
      json: { job_id: JOB, paused: true, snapshot: { outcome: 'paused' } },
    });
    expect((await run('build', 'snapshot', JOB)).stdout).toContain('is paused');
    server.answer(`POST /api/generation/${JOB}/cancel`, {
      json: { job_id: JOB, status: 'cancelled', message: 'Build cancelled' },
    });
    expect((await run('build', 'cancel', JOB)).code).toBe(0);
    server.answer(`GET /api/generation/${JOB}/status`, { json: status('ready') });
    const line = { id: 1, ts: 't', source: 'stdout', text: 'hello', phase: 'deps' };
    server.answer(`GET /api/jobs/${JOB}/logs`, { json: { lines: [line], has_more: false, oldest_id: 1 } });
    expect((await run('build', 'logs', JOB)).stdout).toBe('deps stdout hello\n');
  });

  it('shows logs of any length, and then new lines', async () => {
    const line = (id: number) => ({ id, ts: 't', source: 'stdout', text: `${id}`, phase: 'deps' });
    server.answer(`GET /api/jobs/${JOB}/logs`, ({ query }) => {
      const before = Number(query.get('before_id') ?? 701);
      const first = Math.max(1, before - Number(query.get('limit')));
      const lines = Array.from({ length: before - first }, (_, i) => line(first + i));
      return { json: { lines, has_more: first > 1, oldest_id: first } };
    });
    server.answer(`GET /api/jobs/${JOB}/logs/stream`, ({ headers }) => ({
      raw: (response) => {
        const next = Number(headers['last-event-id']) + 1;
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end(
          `id: ${next}\nevent: log\ndata: ${JSON.stringify(line(next))}\n\nevent: done\ndata: {}\n\n`,
        );
      },
    }));
    const texts = (stdout: string) =>
      stdout
        .trim()
        .split('\n')
        .map((text) => Number(text.split(' ').at(-1)));
    const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
    expect(texts((await run('build', 'logs', JOB, '-l', '650')).stdout)).toEqual(numbers(51, 700));
    expect(texts((await run('build', 'logs', JOB, '-l', '2', '-f')).stdout)).toEqual([699, 700, 701]);
  });

  it('shows files and docs', async () => {
    server.answer(`GET /api/generation/${JOB}/files`, ({ query }) =>
      query.get('path') === 'index.html'
        ? { text: '<p>hi</p>' }
        : { json: { items: [{ path: 'index.html', size: 9, executable: false }] } },
    );
    expect((await run('build', 'files', JOB)).stdout).toMatch(/index\.html +9 B/);
    expect((await run('build', 'files', JOB, 'index.html')).stdout).toBe('<p>hi</p>');
    server.answer(`GET /api/generation/${JOB}/docs`, {
      json: {
        overview: '# Otters',
        features: null,
        getting_started: 'npm start',
        faq: null,
        changelog: null,
      },
    });
    expect((await run('build', 'docs', JOB)).stdout).toBe('# Otters\n\n## getting started\n\nnpm start\n');
  });

  it('shows that a preview has expired before it is resumed (R49)', async () => {
    const gone = status('ready', {
      sandbox_id: 'sbx_aaaaaaaaaaaaaaaaaaaa',
      sandbox_state: 'expired',
      sandbox_reason: 'it was killed',
      sandbox_paused: false,
      expired: true,
    });
    server.answer('GET /api/jobs', { json: { items: [gone], nextCursor: null } });
    expect((await run('build', 'ls')).stdout).toContain('ready, expired');
    server.answer(`GET /api/generation/${JOB}/status`, { json: gone });
    const { stdout } = await run('build', 'status', JOB);
    expect(stdout).toMatch(/sandbox_state +expired/);
    expect(stdout).toMatch(/sandbox_reason +it was killed/);
  });

  it('says whether the preview is paused, or until when it runs (R24, R26)', () => {
    const note = (more: object) => previewNote(status('ready', more) as BuildStatus);
    expect(note({ sandbox_state: 'paused' })).toBe(' The preview is paused and wakes when it is opened.');
    const running = { sandbox_state: 'running', sandbox_expires_at: '2026-01-01T01:00:00.000Z' };
    expect(note(running)).toBe(' The preview runs until 2026-01-01T01:00:00.000Z.');
    expect(note({ sandbox_state: 'running' })).toBe(' The preview runs.');
    expect(note({ sandbox_state: 'expired', sandbox_reason: 'it was killed' })).toContain('it was killed');
  });

  it('says that an expired preview needs a rebuild', async () => {
    const detail = {
      message: 'The sandbox has expired.',
      error_type: 'sandbox_expired',
      code: 'checkpoint_corrupt',
      platform_message: 'It is damaged.',
    };
    server.answer(`POST /api/generation/${JOB}/resume`, { status: 503, json: { detail, debug_id: 'd' } });
    const { code, stderr } = await run('build', 'resume', JOB, '--json');
    expect(code).toBe(14);
    expect(JSON.parse(stderr).error).toMatchObject({
      code: 'API_ERROR',
      hint: expect.stringContaining('torpor build rebuild'),
      details: {
        status: 503,
        code: 'expired',
        fields: { platform_code: 'checkpoint_corrupt', platform_message: 'It is damaged.' },
      },
    });
  });

  it('refuses a missing goal and an invalid job', async () => {
    expect((await run('build')).code).toBe(10);
    expect((await run('build', 'logs', 'nonsense')).code).toBe(10);
    expect(await run('build', 'log', 'last')).toMatchObject({
      code: 10,
      stderr: expect.stringContaining('Unknown command `torpor build log`'),
    });
  });

  it('allows a build more iterations', async () => {
    const usage = {
      jobs_used: 1,
      jobs_remaining: 1,
      iterations_used: 2,
      iterations_remaining: 2,
      daily_limit_resets_at: '2026-01-02T00:00:00.000Z',
    };
    server.answer(`POST /api/jobs/${JOB}/confirm`, { json: { job_id: JOB, iterations_granted: 2, usage } });
    expect((await run('build', 'confirm', JOB)).stdout).toBe(`${JOB} may run 2 more iterations\n`);
  });
});
