import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer, errorReply, type Reply } from '../../testing/api-server.ts';
import { recordedPace } from '../../testing/recorded-pace.ts';
import {
  CHECKPOINT_ID,
  checkpointView,
  eventView,
  JOB_ID,
  jobView,
  OPERATION_ID,
  operationView,
  processView,
  SANDBOX_ID,
  sandboxView,
} from '../../testing/views.ts';
import { Torpor } from '../client.ts';
import { CapacityError } from '../errors.ts';
import { PartialForkError } from './partial-fork-error.ts';
import { Sandbox } from './sandbox.ts';

let server: ApiServer;
let torpor: Torpor;
let sandbox: Sandbox;
beforeEach(async () => {
  server = await apiServer();
  torpor = new Torpor({ url: server.url, apiKey: 'secret', env: {}, pace: recordedPace() });
  server.answer('GET /v1/sandboxes/*', { json: sandboxView() });
  sandbox = await Sandbox.connect(SANDBOX_ID, { torpor });
  server.requests.length = 0;
});
afterEach(() => server.close());

const OTHER = 'sbx_zzzzzzzzzzzzzzzzzzzz';
const asked = () => server.requests.map(({ method, path }) => `${method} ${path}`);
const sentBody = () => JSON.parse(server.requests.at(-1)?.body ?? '');

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

describe('a sandbox', () => {
  it('is created with the given options, by its own client or a given one', async () => {
    server.answer('POST /v1/sandboxes', { status: 201, json: sandboxView({ name: 'web' }) });
    const options = { url: server.url, apiKey: 'mine', env: {} };
    const made = await Sandbox.create({ name: 'web', idleSeconds: 60 }, options);
    expect([made.id, made.name, made.state]).toEqual([SANDBOX_ID, 'web', 'running']);
    expect(sentBody()).toEqual({ name: 'web', idleSeconds: 60 });
    expect(server.requests.at(-1)?.headers).toMatchObject({ authorization: 'Bearer mine' });
    expect(server.requests.at(-1)?.headers['idempotency-key']).toMatch(/^[0-9a-f]{32}$/);
    await Sandbox.create({}, { torpor, idempotencyKey: 'once' });
    expect(server.requests.at(-1)?.headers).toMatchObject({
      authorization: 'Bearer secret',
      'idempotency-key': 'once',
    });
  });

  it('is found by its id with or without prefix, without being woken', async () => {
    server.answer('GET /v1/sandboxes/*', { json: sandboxView({ state: 'paused' }) });
    const found = await Sandbox.connect('aaaaaaaaaaaaaaaaaaaa', { torpor });
    expect([found.id, found.state]).toEqual([SANDBOX_ID, 'paused']);
    expect(asked()).toEqual(['GET /v1/sandboxes/aaaaaaaaaaaaaaaaaaaa']);
  });

  it('is listed', async () => {
    const items = [sandboxView(), sandboxView({ id: OTHER })];
    server.answer('GET /v1/sandboxes', { json: { items, nextCursor: null } });
    const found = await all(Sandbox.list({ metadata: { app: 'web' } }, { torpor }));
    expect(found.map(({ id }) => id)).toEqual([SANDBOX_ID, OTHER]);
    expect(server.requests.at(-1)?.query.get('metadata.app')).toBe('web');
  });

  it('keeps the view of the last response', async () => {
    const paused = sandboxView({ state: 'paused', checkpointId: CHECKPOINT_ID });
    const reply = {
      sandbox: paused,
      checkpoint: checkpointView(),
      operation: operationView(),
      warm: false,
      warmReason: null,
    };
    server.answer('POST /v1/sandboxes/*/pause', { json: reply });
    expect(await sandbox.pause({ mode: 'files' })).toEqual(reply);
    expect([sandbox.state, sandbox.view.checkpointId]).toEqual(['paused', CHECKPOINT_ID]);
    expect(JSON.parse(JSON.stringify(sandbox))).toEqual(paused);
    await sandbox.refresh();
    expect(sandbox.state).toBe('running');
  });

  const resumed = {
    sandbox: sandboxView({ generation: 2 }),
    source: { checkpointId: null, kind: 'files' },
    lost: [],
  };
  it.each<[string, unknown, unknown, (one: Sandbox) => Promise<unknown>]>([
    ['POST resume', { timeoutSeconds: 60 }, resumed, (one) => one.resume({ timeoutSeconds: 60 })],
    ['POST rollback', { checkpointId: CHECKPOINT_ID }, resumed, (one) => one.rollback(CHECKPOINT_ID)],
    ['POST rollback', { checkpointId: CHECKPOINT_ID }, resumed, (one) => one.rollback(checkpointView())],
    ['POST timeout', { timeoutSeconds: null }, sandboxView({ generation: 2 }), (one) => one.setTimeout(null)],
    [
      'POST network',
      { mode: 'none' },
      sandboxView({ generation: 2 }),
      (one) => one.setNetwork({ mode: 'none' }),
    ],
    ['POST checkpoints', { name: 'a' }, checkpointView(), (one) => one.snapshot({ name: 'a' })],
  ])('is changed by one request: %s', async (route, body, json, act) => {
    const [method, verb] = route.split(' ');
    server.answer(`${method} /v1/sandboxes/*/${verb}`, { json });
    expect(await act(sandbox)).toEqual(json);
    expect(asked()).toEqual([`${method} /v1/sandboxes/${SANDBOX_ID}/${verb}`]);
    expect(sentBody()).toEqual(body);
    if (verb !== 'checkpoints') expect(sandbox.view.generation).toBe(2);
  });

  it('can be killed', async () => {
    server.answer('DELETE /v1/sandboxes/*', { json: sandboxView({ state: 'killed' }) });
    await sandbox.kill();
    expect(sandbox.state).toBe('killed');
  });

  it('lists its checkpoints and operations page by page', async () => {
    const pages =
      (item: unknown, more: object) =>
      (request: { query: URLSearchParams }): Reply => ({
        json: { items: [item], nextCursor: request.query.has('cursor') ? null : 'next', ...more },
      });
    server.answer('GET /v1/sandboxes/*/checkpoints', pages(checkpointView(), { bytes: 2 }));
    server.answer('GET /v1/operations', pages(operationView(), {}));
    expect((await all(sandbox.checkpoints())).map(({ id }) => id)).toEqual([CHECKPOINT_ID, CHECKPOINT_ID]);
    expect((await all(sandbox.operations())).map(({ id }) => id)).toEqual([OPERATION_ID, OPERATION_ID]);
    expect(server.requests.at(-1)?.query.get('sandboxId')).toBe(SANDBOX_ID);
  });

  it('has services with their declaration and present status', async () => {
    const declared = [
      { name: 'app', command: 'npm start', port: 3000 },
      { name: 'worker', command: './work' },
    ];
    const urls = { 3000: 'http://127.0.0.1:4001' };
    server.answer('GET /v1/sandboxes/*', {
      json: sandboxView({ services: declared.map((one) => ({ ...one, jobId: JOB_ID })), urls }),
    });
    const running = processView({ id: 'app', kind: 'service', pid: 7, status: 'restarted', startedAt: 5 });
    const namesake = processView({ id: 'worker', kind: 'background' });
    server.answer('GET /v1/sandboxes/*/processes', {
      json: { items: [namesake, running], nextCursor: null },
    });
    const nothing = { status: null, reason: null, pid: null, startedAt: null };
    expect(await sandbox.services()).toEqual([
      { ...declared[0], url: urls[3000], status: 'restarted', reason: null, pid: 7, startedAt: 5 },
      { ...declared[1], port: null, url: null, ...nothing },
    ]);
  });

  it('lists, gets and ends its jobs by their ids (R98, R110)', async () => {
    const lost = { reason: 'files_only_pause', message: 'Only files were kept.' } as const;
    server.answer('GET /v1/sandboxes/*/jobs', {
      json: { items: [jobView({ state: 'lost', endedAt: 5, lost })], nextCursor: null },
    });
    const state = ['running', 'lost'] as const;
    expect(await all(sandbox.jobs.list({ state }))).toMatchObject([{ id: JOB_ID, state: 'lost', lost }]);
    expect(server.requests.at(-1)?.query.get('state')).toBe('running,lost');
    const ended = jobView({ state: 'completed', endedAt: 5, exitCode: 143, signal: 'SIGTERM' });
    server.answer('DELETE /v1/jobs/*', { json: ended });
    expect(await sandbox.jobs.end(JOB_ID, { graceSeconds: 30 })).toEqual(ended);
    expect(server.requests.at(-1)?.query.get('graceSeconds')).toBe('30');
    const build = { id: JOB_ID, kind: 'build', status: 'ready', sandboxId: null, url: '/api' };
    server.answer('GET /v1/jobs/*', { json: build });
    expect(await torpor.jobs.get(JOB_ID)).toEqual(build);
  });

  it('starts background processes, and returns their output', async () => {
    const process = processView({ id: 'req_1', kind: 'background' });
    const jobId = JOB_ID;
    server.answer('POST /v1/sandboxes/*/exec', { json: { jobId, process, autoResumed: false } });
    expect(await sandbox.start('make')).toEqual(process);
    expect(sentBody()).toEqual({ command: 'make', background: true });
    server.answer('GET /v1/sandboxes/*/processes/req_1/output', {
      text: 'event: stdout\ndata: {"data":"a"}\n\nevent: end\ndata: {"exitCode":0,"signal":null}\n\n',
    });
    expect(await all(sandbox.output('req_1', { follow: true }))).toEqual([
      { type: 'stdout', data: 'a' },
      { type: 'end', exitCode: 0, signal: null },
    ]);
    expect(server.requests.at(-1)?.query.get('follow')).toBe('true');
  });
});

describe('fork', () => {
  const failed = errorReply(503, 'capacity', 'Full.').json as object;
  const reply = (...items: unknown[]) =>
    server.answer('POST /v1/sandboxes/*/fork', { status: 201, json: { items } });

  it('returns sandboxes', async () => {
    reply({ sandbox: sandboxView({ id: OTHER }) }, { sandbox: sandboxView() });
    const forks = await sandbox.fork({ count: 2 });
    expect(forks.map(({ id }) => id)).toEqual([OTHER, SANDBOX_ID]);
    expect(sentBody()).toEqual({ count: 2 });
  });

  it('throws the cause when no fork could be created', async () => {
    reply(failed, failed);
    await expect(sandbox.fork({ count: 2 })).rejects.toThrow(CapacityError);
  });

  it('throws a PartialForkError with the forks that were created', async () => {
    reply(failed, { sandbox: sandboxView({ id: OTHER }) });
    const error = await sandbox.fork({ count: 2 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(PartialForkError);
    expect(error).toMatchObject({
      name: 'PartialForkError',
      code: 'capacity',
      message: '1 of 2 forks could not be created: Full.',
      hint: 'Hint for capacity.',
      sandboxes: [{ id: OTHER }],
      errors: [{ name: 'CapacityError', status: 503 }],
    });
  });
});

describe('the signal', () => {
  const hang: Reply = { raw: () => {} };
  const reason = new Error('enough');

  it.each<[string, (one: Sandbox, signal: AbortSignal) => PromiseLike<unknown>]>([
    ['create', (_, signal) => Sandbox.create({}, { torpor, signal })],
    ['connect', (_, signal) => Sandbox.connect(SANDBOX_ID, { torpor, signal })],
    ['list', (_, signal) => all(Sandbox.list({ signal }, { torpor }))],
    ['getOrCreate', (_, signal) => Sandbox.getOrCreate('a', {}, { torpor, signal })],
    ['refresh', (one, signal) => one.refresh({ signal })],
    ['pause', (one, signal) => one.pause({}, { signal })],
    ['resume', (one, signal) => one.resume({}, { signal })],
    ['fork', (one, signal) => one.fork({}, { signal })],
    ['snapshot', (one, signal) => one.snapshot({}, { signal })],
    ['rollback', (one, signal) => one.rollback(CHECKPOINT_ID, { signal })],
    ['kill', (one, signal) => one.kill({ signal })],
    ['setTimeout', (one, signal) => one.setTimeout(1, { signal })],
    ['setNetwork', (one, signal) => one.setNetwork({}, { signal })],
    ['exec', (one, signal) => one.exec('true', { signal })],
    ['exec as a stream', (one, signal) => all(one.exec('true', { signal }))],
    ['start', (one, signal) => one.start('true', { signal })],
    ['open', (one, signal) => one.open('true', { signal })],
    ['shell', (one, signal) => one.shell({ signal })],
    ['files.read', (one, signal) => one.files.read('a', { signal })],
    ['files.stream', (one, signal) => one.files.stream('a', { signal })],
    ['files.write', (one, signal) => one.files.write('a', 'b', { signal })],
    ['files.list', (one, signal) => one.files.list('a', { signal })],
    ['files.remove', (one, signal) => one.files.remove('a', { signal })],
    ['processes', (one, signal) => one.processes({ signal })],
    ['services', (one, signal) => one.services({ signal })],
    ['output', (one, signal) => all(one.output('a', { signal }))],
    ['ports', (one, signal) => one.ports({ signal })],
    ['events', (one, signal) => all(one.events({ signal }))],
    ['checkpoints', (one, signal) => all(one.checkpoints({ signal }))],
    ['operations', (one, signal) => all(one.operations({ signal }))],
    ['waitFor', (one, signal) => one.waitFor('paused', { signal })],
    ['fetch', (one, signal) => one.fetch(3000, '/', { signal })],
  ])('ends %s', async (_, act) => {
    const giveUp = new AbortController();
    server.answerAll(() => {
      giveUp.abort(reason);
      return hang;
    });
    await expect(act(sandbox, giveUp.signal)).rejects.toBe(reason);
    await expect(act(sandbox, giveUp.signal), 'when it fired before').rejects.toBe(reason);
    expect(server.requests.length).toBeLessThanOrEqual(2);
  });
});

describe('fetch', () => {
  it('leaves Authorization to the app, and sends the key in X-API-Key', async () => {
    server.answer('GET /v1/sandboxes/*/ports/3000/', { text: 'ok' });
    await sandbox.fetch(3000, '/', { headers: new Headers({ authorization: 'Bearer app' }) });
    expect(server.requests.at(-1)?.headers).toMatchObject({
      authorization: 'Bearer app',
      'x-api-key': 'secret',
    });
  });

  it('keeps the query', async () => {
    server.answer('GET /v1/sandboxes/*/ports/3000/search', { text: 'ok' });
    await sandbox.fetch(3000, 'search?q=a%20b&q=c');
    expect(server.requests.at(-1)?.query.getAll('q')).toEqual(['a b', 'c']);
  });

  it.each(['..', '/..', '../../pause', '/%2e%2e/%2E%2e/pause', '/a/../../x', '\\..\\..\\pause', '/.\t./x'])(
    'refuses the path %j, which leads out of the port to the API',
    async (path) => {
      const leaving = sandbox.fetch(3000, path, { method: 'POST' });
      await expect(leaving).rejects.toMatchObject({ code: 'invalid_request' });
      expect(server.requests).toEqual([]);
    },
  );
});

describe('events', () => {
  it('are those of the sandbox', async () => {
    server.answer('GET /v1/sandboxes/*/events', {
      raw: (response) => response.write(`id: 1\ndata: ${JSON.stringify(eventView(1))}\n\n`),
    });
    for await (const event of sandbox.events()) {
      expect(event).toEqual(eventView(1));
      break;
    }
    expect(asked()).toEqual([`GET /v1/sandboxes/${SANDBOX_ID}/events`]);
  });
});
