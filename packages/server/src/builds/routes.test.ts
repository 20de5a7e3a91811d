import type { Builds, Runner } from '@torpor/builds';
import { APP, FakeProvider, textFile, throwing } from '@torpor/builds/testing';
import { type Clock, systemClock } from '@torpor/engine';
import { type BuildEvent, type JobId, TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { framesOf } from '../../testing/event-frames.ts';
import { testBuilds } from '../../testing/test-builds.ts';
import { type TestServer, testServer } from '../../testing/test-server.ts';

const ALL = ['queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready'];

describe('the builds API', () => {
  let server: TestServer;
  let provider: FakeProvider;
  let builds: Builds;
  let url: string;
  let run: Runner['run'] = async () => APP;
  /** Makes the server's long timeouts end at once. */
  let hurried = false;
  beforeAll(async () => {
    provider = new FakeProvider(systemClock);
    server = await testServer({
      wrapApp: (ctx) => {
        const { clock } = ctx;
        builds = testBuilds(ctx, provider, {
          run: (order, signal) => run(order, signal),
          settings: { maxWaiting: 3 },
        });
        const sleep: Clock['sleep'] = (ms, signal) => clock.sleep(hurried && ms >= 15_000 ? 5 : ms, signal);
        return { builds, clock: { ...clock, sleep } };
      },
    });
    await builds.start();
    url = await server.listen();
  });
  afterAll(async () => {
    await builds.stop();
    await server.dispose();
  });

  const headers = () => ({ authorization: `Bearer ${server.keys.default}` });
  const begin = async (body: object = {}) => {
    const answer = await server.ask('POST', '/api/generation/start', {
      body: { project_id: 'site', goal: 'a site', ...body },
    });
    expect(answer.statusCode).toBe(201);
    return answer.json<{ job_id: JobId }>().job_id;
  };
  const stream = async (path: string, more: Record<string, string> = {}) => {
    const response = await fetch(`${url}${path}`, { headers: { ...headers(), ...more } });
    const frames = [];
    for await (const frame of framesOf(response)) if (frame.comment === undefined) frames.push(frame);
    return { response, frames };
  };
  const ready = async () => {
    const id = await begin();
    await stream(`/api/jobs/${id}/stream`);
    await expect
      .poll(async () => (await server.ask('GET', `/api/generation/${id}/status`)).json().sandbox_paused)
      .toBe(true);
    return id;
  };
  const stageOf = ({ data }: { data?: unknown }) => (data as BuildEvent).stage;
  const detailOf = (answer: { json(): unknown }) => answer.json() as { detail: unknown; debug_id: string };

  it('starts a build and shows every step of it (R1, R13, R22)', async () => {
    const held = Promise.withResolvers<void>();
    run = () => held.promise.then(() => APP);
    const answer = await server.ask('POST', '/api/generation/start', {
      body: { project_id: 'first', goal: 'g' },
    });
    expect(answer.json()).toEqual({
      job_id: expect.stringMatching(/^job_/),
      status: 'queued',
      build_version: 'build_v0_1',
    });
    const { job_id } = answer.json<{ job_id: JobId }>();
    const following = stream(`/api/jobs/${job_id}/events/stream`);
    await expect.poll(() => server.ctx.metrics.streams.get().then(({ values }) => values[0]?.value)).toBe(1);
    held.resolve();
    const { response, frames } = await following;
    expect(response.headers.get('content-type')).toContain('text/event-stream');
    expect(response.headers.get('cache-control')).toBe('no-cache');
    expect(response.headers.get('x-accel-buffering')).toBe('no');
    const events = frames.map(({ data }) => data as BuildEvent);
    const stages = (type: string) => frames.filter(({ event }) => event === type).map(stageOf);
    expect(stages('build.stage.started')).toEqual(ALL);
    expect(stages('build.stage.completed')).toEqual(ALL.slice(0, -1));
    expect(stages('documentation.updated')).toEqual(['code']);
    // The stream stays open for the pause after ready (R24).
    expect(frames.at(-1)?.event).toBe('snapshot.updated');
    expect(JSON.parse(events.at(-2)?.message ?? '')).toMatchObject({
      preview_url: expect.stringContaining('https://'),
    });
    run = async () => APP;
    const missed = await stream(`/api/jobs/${job_id}/events/stream`, { 'last-event-id': '9' });
    expect(missed.frames.map(stageOf)).toEqual(['deps', 'deps', 'checks', 'checks', 'ready', 'ready']);
    // The build is finished: the stream has one frame and ends.
    const late = await stream(`/api/jobs/${job_id}/events/stream`);
    expect(late.frames.map(stageOf)).toEqual(['ready']);
    const status = await stream(`/api/jobs/${job_id}/stream`);
    expect(status.frames.map(stageOf)).toEqual(['ready']);
  });

  it('streams both ready and the pause to a client that connects between them, and then ends (R13, R22, R24)', async () => {
    const held = Promise.withResolvers<void>();
    provider.fail('pause', () => held.promise);
    const id = await begin();
    await stream(`/api/jobs/${id}/stream`);
    const between = stream(`/api/jobs/${id}/events/stream`);
    await expect.poll(() => server.ctx.metrics.streams.get().then(({ values }) => values[0]?.value)).toBe(1);
    held.resolve();
    expect((await between).frames.map(({ event }) => event)).toEqual([
      'build.stage.started',
      'snapshot.updated',
    ]);
  });

  it('streams new log lines and lists the log in pages (R22)', async () => {
    run = async ({ output }) => {
      output('stdout', 'hello\nand token=abcdefghijkl\n');
      return APP;
    };
    const id = await begin();
    const { frames } = await stream(`/api/jobs/${id}/logs/stream`);
    run = async () => APP;
    expect(frames.at(-1)).toMatchObject({ event: 'done', data: { status: 'ready' } });
    const page = (await server.ask('GET', `/api/jobs/${id}/logs?limit=2`)).json();
    expect(page).toMatchObject({
      has_more: true,
      lines: [{ source: expect.any(String), phase: expect.any(String) }, {}],
    });
    const whole = (await server.ask('GET', `/api/jobs/${id}/logs?before_id=1000`)).json<{
      lines: { text: string }[];
    }>();
    expect(whole.lines.map(({ text }) => text)).toEqual(
      expect.arrayContaining(['hello', 'and token=[redacted]']),
    );
    for (const limit of [0, 501, 'x']) {
      expect((await server.ask('GET', `/api/jobs/${id}/logs?limit=${limit}`)).statusCode).toBe(422);
    }
  });

  it.each(['stream', 'events/stream', 'logs/stream'])('sends heartbeats on %s (R22)', async (path) => {
    const held = Promise.withResolvers<void>();
    run = () => held.promise.then(() => APP);
    hurried = true;
    try {
      const id = await begin();
      const response = await fetch(`${url}/api/jobs/${id}/${path}`, { headers: headers() });
      const events: string[] = [];
      for await (const { event } of framesOf(response)) {
        events.push(event ?? '');
        if (event === 'heartbeat') held.resolve();
      }
      expect(events).toContain('heartbeat');
      expect(['message', 'snapshot.updated', 'done']).toContain(
        events.findLast((one) => one !== 'heartbeat'),
      );
    } finally {
      hurried = false;
      held.resolve();
      run = async () => APP;
    }
  });

  it('answers with the documented fields and values (R10, R25, R27, R41)', async () => {
    const id = await ready();
    const at = (path: string) => `/api/generation/${id}${path}`;
    const status = (await server.ask('GET', at('/status'))).json();
    expect(status).toMatchObject({
      job_id: id,
      status: 'ready',
      stage_label: 'Build complete!',
      sandbox_paused: true,
      sandbox_expires_at: null,
      snapshot_url: null,
      docs_ready: true,
    });
    expect((await server.ask('POST', at('/resume'))).json()).toEqual({
      preview_url: status.preview_url,
      sandbox_id: status.sandbox_id,
    });
    for (let i = 0; i < 10; i++) {
      const answer = await server.ask('POST', at('/snapshot'));
      expect(answer.statusCode).toBe(200);
      expect(answer.json()).toMatchObject({ job_id: id, paused: true });
    }
    expect((await server.ask('GET', at('/preview-check'))).json()).toMatchObject({
      preview_url: status.preview_url,
    });
    expect((await server.ask('POST', at('/preview-viewed'))).json()).toEqual({
      gate_id: null,
      status: 'gate_created',
    });
    expect((await server.ask('POST', at('/preview-viewed'))).json()).toMatchObject({
      status: 'gate_already_created',
    });
    expect((await server.ask('POST', at('/rebuild'))).json()).toMatchObject({ status: 'queued' });
    expect((await server.ask('GET', `/api/jobs/${id}`)).json()).toMatchObject({
      job_id: id,
      status: 'ready',
      position: 0,
    });
    expect((await server.ask('POST', `/api/jobs/${id}/confirm`)).statusCode).toBe(400);
    const list = (await server.ask('GET', '/api/jobs?limit=2')).json();
    expect(list.items).toHaveLength(2);
    expect(list.items.map((item: { job_id: string }) => item.job_id)).toContain(id);
    const more = (await server.ask('GET', `/api/jobs?limit=100&cursor=${list.nextCursor}`)).json();
    expect(more.items.length).toBeGreaterThan(0);
    const all = list.items.length + more.items.length;
    expect((await server.ask('GET', `/api/jobs?limit=${all}`)).json()).toMatchObject({ nextCursor: null });
  });

  it('serves the files and docs of a build, also of a failed one', async () => {
    const page = [textFile('README.md', '# Otters\n\nA page.\n\n## Features\n\n- otters\n'), ...APP];
    run = async () => page;
    provider.fail('publish', throwing(new TorporError('conflict', 'It ended.')));
    const id = await begin();
    await stream(`/api/jobs/${id}/stream`);
    run = async () => APP;
    const at = (path: string) => server.ask('GET', `/api/generation/${id}${path}`);
    expect((await at('/status')).json()).toMatchObject({ status: 'failed', docs_ready: true });
    expect((await at('/docs')).json()).toEqual({
      overview: '# Otters\n\nA page.',
      features: '- otters',
      getting_started: expect.stringContaining('npm start'),
      faq: null,
      changelog: null,
    });
    expect((await at('/files')).json()).toEqual({
      items: page.map(({ path, content }) => ({ path, size: content.length, executable: false })),
    });
    const file = await at('/files?path=server.mjs');
    expect(file.body).toBe('console.log("hello")');
    expect(file.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-disposition': 'attachment',
      'x-content-type-options': 'nosniff',
    });
    for (const path of ['no.txt', '../package.json']) {
      expect((await at(`/files?path=${path}`)).statusCode).toBe(404);
    }
  });

  it('answers 410 with a type for files and logs that have expired', async () => {
    const id = await ready();
    await server.world.db.transaction((tx) =>
      tx.query('UPDATE build_jobs SET files_expired_at = 1, logs_expired_at = 1 WHERE id = $1', [id]),
    );
    const at = (path: string) => server.ask('GET', path);
    expect((await at(`/api/generation/${id}/status`)).json()).toMatchObject({
      files_expired: true,
      logs_expired: true,
    });
    for (const [path, type] of [
      [`/api/generation/${id}/files`, 'files_expired'],
      [`/api/generation/${id}/files?path=server.mjs`, 'files_expired'],
      [`/api/generation/${id}/docs`, 'files_expired'],
      [`/api/jobs/${id}/logs`, 'logs_expired'],
      [`/api/jobs/${id}/logs/stream`, 'logs_expired'],
    ] as const) {
      const answer = await at(path);
      expect(answer.statusCode, path).toBe(410);
      expect(detailOf(answer).detail, path).toEqual({ message: expect.any(String), error_type: type });
    }
  });

  it('continues the log after the last line that the client has (R22)', async () => {
    run = async ({ output }) => {
      output('stdout', 'one\ntwo\nthree\n');
      return APP;
    };
    const id = await begin();
    await stream(`/api/jobs/${id}/stream`);
    run = async () => APP;
    const texts = async (after: string) => {
      const { frames } = await stream(`/api/jobs/${id}/logs/stream`, { 'last-event-id': after });
      return frames.filter(({ event }) => event === 'log').map(({ data }) => (data as { text: string }).text);
    };
    const all = await texts('0');
    expect(all.slice(0, 3)).toEqual(['one', 'two', 'three']);
    expect(await texts('2')).toEqual(all.slice(2));
  });

  it('distinguishes expired from unreachable (R34, R35, R36)', async () => {
    const id = await ready();
    const away = throwing(new TorporError('unreachable', 'away'));
    provider.fail('connect', away, away);
    const unreachable = await server.ask('POST', `/api/generation/${id}/resume`);
    expect(unreachable.statusCode).toBe(503);
    expect(detailOf(unreachable)).toEqual({
      detail: {
        message: expect.any(String),
        error_type: 'sandbox_unreachable',
        retryable: true,
        code: 'unreachable',
        platform_message: 'away',
      },
      debug_id: expect.any(String),
    });
    const checkpointId = 'ckpt_aaaaaaaaaaaaaaaaaaaa';
    const corrupt = new TorporError('checkpoint_corrupt', 'It is damaged.', { checkpointId });
    provider.fail('connect', throwing(corrupt));
    const expired = await server.ask('POST', `/api/generation/${id}/resume`);
    expect(expired.statusCode).toBe(503);
    expect(detailOf(expired).detail).toEqual({
      message: 'The sandbox has expired. Rebuild to get a new preview.',
      error_type: 'sandbox_expired',
      retryable: false,
      code: 'checkpoint_corrupt',
      platform_message: 'It is damaged.',
      checkpoint_id: checkpointId,
    });
  });

  it('hides the message of an internal error in a failed resume (R36, R114)', async () => {
    const id = await ready();
    const fault = throwing(new Error('password=hunter2 at /srv/secret'));
    provider.fail('connect', fault, fault);
    const answer = await server.ask('POST', `/api/generation/${id}/resume`);
    expect(detailOf(answer).detail).toMatchObject({ error_type: 'sandbox_unreachable', code: 'internal' });
    expect(answer.body).not.toContain('hunter2');
  });

  it('shows that a preview has expired before a client resumes it (R10, R49)', async () => {
    const id = await ready();
    const { sandbox_id } = (await server.ask('GET', `/api/generation/${id}/status`)).json();
    await provider.kill('default', sandbox_id);
    const shown = { job_id: id, status: 'ready', sandbox_state: 'expired', expired: true };
    expect((await server.ask('GET', `/api/generation/${id}/status`)).json()).toMatchObject({
      ...shown,
      sandbox_reason: 'it was killed',
      sandbox_paused: false,
    });
    const { items } = (await server.ask('GET', '/api/jobs?limit=100')).json<{ items: { job_id: JobId }[] }>();
    expect(items.find(({ job_id }) => job_id === id)).toMatchObject(shown);
    expect((await server.ask('GET', `/api/generation/${id}/preview-check`)).json()).toMatchObject({
      embeddable: false,
      reason: 'Sandbox expired: it was killed.',
    });
  });

  it('answers unreachable when a wake outlasts its request, and continues the wake (R36, R46)', async () => {
    const id = await ready();
    const held = Promise.withResolvers<void>();
    provider.fail('connect', () => held.promise);
    hurried = true;
    const late = await server.ask('POST', `/api/generation/${id}/resume`);
    hurried = false;
    expect(late.statusCode).toBe(503);
    expect(detailOf(late).detail).toMatchObject({ error_type: 'sandbox_unreachable' });
    const joined = server.ask('POST', `/api/generation/${id}/resume`);
    held.resolve();
    expect((await joined).statusCode).toBe(200);
  });

  it('refuses with {detail, debug_id} and the right status (R44)', async () => {
    const id = await ready();
    const held = Promise.withResolvers<void>();
    run = async () => {
      await held.promise;
      return APP;
    };
    const working = await begin();
    await expect
      .poll(async () => (await server.ask('GET', `/api/jobs/${working}`)).json().status)
      .toBe('code');
    const unknown = 'job_00000000000000000000';
    const cases: readonly (readonly ['GET' | 'POST', string, number, object?])[] = [
      ['POST', '/api/generation/start', 422, { body: { goal: 'g' } }],
      ['POST', '/api/generation/start', 422, { body: { project_id: '', goal: 'g' } }],
      ['POST', '/api/generation/start', 422, { body: { project_id: 'p', goal: '' } }],
      ['POST', '/api/generation/start', 422, { body: { project_id: 'p', goal: 'g', runner: 'openai' } }],
      ['POST', '/api/generation/start', 401, { body: { project_id: 'p', goal: 'g' }, key: null }],
      ['GET', `/api/generation/${unknown}/status`, 404],
      ['GET', '/api/generation/nonsense/status', 404],
      ['POST', `/api/generation/${unknown}/resume`, 404],
      ['POST', `/api/generation/${unknown}/snapshot`, 404],
      ['POST', `/api/generation/${id}/resume`, 404, { key: server.keys.other }],
      ['POST', `/api/generation/${id}/snapshot`, 404, { key: server.keys.other }],
      ['POST', `/api/generation/${id}/resume`, 404, { key: server.keys.user }],
      ['GET', `/api/generation/${id}/status`, 404, { headers: { 'torpor-user': 'bob' } }],
      ['POST', `/api/generation/${id}/resume`, 401, { key: null }],
      ['POST', `/api/generation/${id}/snapshot`, 401, { key: null }],
      ['POST', `/api/generation/${working}/snapshot`, 422],
      ['POST', `/api/generation/${working}/resume`, 404],
      ['GET', `/api/generation/${working}/preview-check`, 404],
      ['POST', `/api/generation/${working}/preview-viewed`, 422],
      ['POST', `/api/generation/${id}/cancel`, 409],
      ['POST', `/api/generation/${working}/rebuild`, 409],
      ['GET', `/api/generation/${unknown}/docs`, 404],
      ['GET', `/api/generation/${unknown}/files`, 404],
      ['GET', `/api/generation/${id}/files?path=`, 422],
      ['GET', '/api/generation/nowhere', 404],
      ['GET', '/api/generation/%zz/status', 422],
      ['GET', `/api/generation/${'x'.repeat(300)}/status`, 414],
      ['GET', `/api/generation/${id}/resume`, 405],
      ['POST', '/api/jobs', 415, { body: 'g', headers: { 'content-type': 'text/plain' } }],
      ['GET', `/api/jobs/${unknown}/stream`, 404],
      ['GET', `/api/jobs/${unknown}/logs/stream`, 404],
    ];
    for (const [method, path, status, options] of cases) {
      const answer = await server.ask(method, path, options);
      expect(answer.statusCode, `${method} ${path}`).toBe(status);
      expect(detailOf(answer), path).toEqual({ detail: expect.any(String), debug_id: expect.any(String) });
    }
    expect((await server.ask('POST', `/api/generation/${working}/cancel`)).json()).toEqual({
      job_id: working,
      status: 'cancelled',
      message: 'Build cancelled',
    });
    held.resolve();
    run = async () => APP;
  });

  it('refuses a build when the queue is full (R21)', async () => {
    const held = Promise.withResolvers<void>();
    run = async () => {
      await held.promise;
      return APP;
    };
    const answers = [];
    for (let i = 0; i < 12; i++) {
      answers.push(await server.ask('POST', '/api/jobs', { body: { project_id: `busy-${i}`, goal: 'g' } }));
    }
    held.resolve();
    run = async () => APP;
    expect(answers[0]?.json()).toMatchObject({ status: 'queued', usage: { jobs_used: expect.any(Number) } });
    const busy = answers.find(({ statusCode }) => statusCode === 503);
    expect(detailOf(busy ?? { json: () => ({}) }).detail).toMatch(
      /^System busy\. Try again in \d+ minutes\.$/,
    );
    expect(Number(busy?.headers['retry-after'])).toBeGreaterThanOrEqual(60);
  });

  it('makes one build for two requests with one idempotency key', async () => {
    await expect
      .poll(async () =>
        (await builds.list({ org: 'default', user: 'default' }, 1e9, 50)).items.every(
          ({ status }) => status === 'ready' || status === 'failed',
        ),
      )
      .toBe(true);
    const ask = () =>
      server.ask('POST', '/api/generation/start', {
        body: { project_id: 'once', goal: 'g' },
        headers: { 'idempotency-key': 'k-1' },
      });
    const [first, second] = await Promise.all([ask(), ask()]);
    expect(first?.json()).toEqual(second?.json());
  });

  it('hides internal details of errors (R114)', async () => {
    provider.fail('find', throwing(new Error('password=hunter2 at /srv/secret')));
    const id = await ready().catch(() => undefined);
    provider.fail('find', throwing(new Error('password=hunter2 at /srv/secret')));
    const answer = await server.ask('GET', `/api/generation/${id}/status`);
    expect(answer.statusCode).toBe(500);
    expect(detailOf(answer).detail).toBe('Internal server error');
    const line = server.log.find((one) => one.includes(detailOf(answer).debug_id));
    expect(line).toBeDefined();
  });
});
