import type { BuildEvent, BuildState } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer } from '../testing/api-server.ts';
import { recordedPace } from '../testing/recorded-pace.ts';
import { Torpor } from './client.ts';
import {
  ConflictError,
  ExpiredError,
  InvalidRequestError,
  NotFoundError,
  UnreachableError,
} from './errors.ts';

const JOB = 'job_aaaaaaaaaaaaaaaaaaaa';

describe('builds', () => {
  let server: ApiServer;
  let torpor: Torpor;
  beforeEach(async () => {
    server = await apiServer();
    torpor = new Torpor({ url: server.url, apiKey: 'key', pace: recordedPace() });
  });
  afterEach(() => server.close());

  const event = (status: BuildState): BuildEvent => ({
    type: 'build.stage.started',
    job_id: JOB,
    status,
    stage: status,
    stage_label: status,
    message: '',
    timestamp: '2026-01-01T00:00:00.000Z',
  });
  const frame = (id: number, name: string, data: unknown) =>
    `id: ${id}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

  it('start', async () => {
    const started = { job_id: JOB, status: 'queued', build_version: 'build_v0_1' } as const;
    server.answer('POST /api/generation/start', () => ({ status: 201, json: started }));
    expect(await torpor.builds.start({ project_id: 'p', goal: 'g' })).toEqual(started);
    expect(server.requests[0]?.body).toBe('{"project_id":"p","goal":"g"}');
  });

  it.each([
    [404, 'Job not found', NotFoundError],
    [409, 'over', ConflictError],
    [422, 'not valid', InvalidRequestError],
    [503, { message: 'gone', error_type: 'sandbox_expired' }, ExpiredError],
    [503, { message: 'away', error_type: 'sandbox_unreachable' }, UnreachableError],
  ])('throw the error class of a %i with %j', async (status, detail, kind) => {
    server.answer(`POST /api/generation/${JOB}/resume`, () => ({
      status,
      json: { detail, debug_id: 'd-1' },
    }));
    const failed = await torpor.builds.resume(JOB).catch((thrown: unknown) => thrown);
    expect(failed).toBeInstanceOf(kind);
    expect(failed).toMatchObject({
      message: typeof detail === 'string' ? detail : detail.message,
      details: { debug_id: 'd-1' },
    });
    expect(server.requests).toHaveLength(1);
  });

  it('are followed to their end, over broken connections', async () => {
    const asked: (string | undefined)[] = [];
    server.answer(`GET /api/jobs/${JOB}/events/stream`, ({ headers }) => ({
      raw: (response) => {
        asked.push(headers['last-event-id'] as string | undefined);
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        if (asked.length === 1) {
          response.write(frame(1, 'build.stage.started', event('queued')));
          response.write(frame(2, 'build.stage.started', event('starting')), () => response.destroy());
          return;
        }
        response.write('event: heartbeat\ndata: {}\n\n');
        response.end(frame(3, 'build.stage.started', event('ready')));
      },
    }));
    const states: string[] = [];
    for await (const { status } of torpor.builds.events(JOB)) states.push(status);
    expect(states).toEqual(['queued', 'starting', 'ready']);
    expect(asked).toEqual(['0', '2']);
  });

  it('are followed after ready until the stream ends, over broken connections (R22, R24)', async () => {
    const asked: (string | undefined)[] = [];
    const slept = { ...event('ready'), type: 'snapshot.updated' as const };
    server.answer(`GET /api/jobs/${JOB}/events/stream`, ({ headers }) => ({
      raw: (response) => {
        asked.push(headers['last-event-id'] as string | undefined);
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        if (asked.length === 1) {
          response.write(frame(1, 'build.stage.started', event('ready')), () => response.destroy());
          return;
        }
        response.end(frame(2, 'snapshot.updated', slept));
      },
    }));
    const types: string[] = [];
    for await (const { type } of torpor.builds.events(JOB)) types.push(type);
    expect(types).toEqual(['build.stage.started', 'snapshot.updated']);
    expect(asked).toEqual(['0', '1']);
  });

  it("have the platform's code and message in the error of an expired preview (R36)", async () => {
    const detail = {
      message: 'gone',
      error_type: 'sandbox_expired',
      retryable: false,
      code: 'checkpoint_corrupt',
      platform_message: 'It is damaged.',
      checkpoint_id: 'ckpt_aaaaaaaaaaaaaaaaaaaa',
    };
    server.answer(`POST /api/generation/${JOB}/resume`, { status: 503, json: { detail, debug_id: 'd-1' } });
    const failed = await torpor.builds.resume(JOB).catch((thrown: unknown) => thrown);
    expect(failed).toBeInstanceOf(ExpiredError);
    expect(failed).toMatchObject({
      code: 'expired',
      retryable: false,
      checkpointId: detail.checkpoint_id,
      hint: expect.stringContaining('rebuild'),
      details: {
        error_type: 'sandbox_expired',
        platform_code: 'checkpoint_corrupt',
        platform_message: 'It is damaged.',
      },
    });
  });

  it('return their files and docs', async () => {
    const docs = { overview: '# T', features: null, getting_started: null, faq: null, changelog: null };
    const file = { path: 'a b.txt', size: 2, executable: false };
    server.answer(`GET /api/generation/${JOB}/docs`, { json: docs });
    server.answer(`GET /api/generation/${JOB}/files`, ({ query }) =>
      query.get('path') === 'a b.txt' ? { text: 'hi' } : { json: { items: [file] } },
    );
    expect(await torpor.builds.docs(JOB)).toEqual(docs);
    expect(await torpor.builds.files(JOB)).toEqual([file]);
    expect(new TextDecoder().decode(await torpor.builds.readFile(JOB, 'a b.txt'))).toBe('hi');
  });

  it('resume the log after the last line, over broken connections', async () => {
    const line = (id: number) => ({ id, ts: 't', source: 'stdout', text: `${id}`, phase: 'deps' });
    const asked: (string | undefined)[] = [];
    server.answer(`GET /api/jobs/${JOB}/logs/stream`, ({ headers }) => ({
      raw: (response) => {
        asked.push(headers['last-event-id'] as string | undefined);
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        if (asked.length === 1) {
          response.write(frame(7, 'log', line(7)), () => response.destroy());
          return;
        }
        response.end(frame(8, 'log', line(8)) + frame(9, 'done', { status: 'ready' }));
      },
    }));
    const ids: number[] = [];
    for await (const { id } of torpor.builds.followLogs(JOB, { afterId: 6 })) ids.push(id);
    expect(ids).toEqual([7, 8]);
    expect(asked).toEqual(['6', '7']);
  });

  it('stream the log', async () => {
    const line = { id: 7, ts: 't', source: 'stdout', text: 'hello', phase: 'deps' };
    server.answer(`GET /api/jobs/${JOB}/logs/stream`, () => ({
      raw: (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end(frame(7, 'log', line) + frame(8, 'done', { status: 'ready' }));
      },
    }));
    const lines = [];
    for await (const one of torpor.builds.followLogs(JOB)) lines.push(one);
    expect(lines).toEqual([line]);
  });
});
