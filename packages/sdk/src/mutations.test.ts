/** Every mutation against every fault: how many requests are sent. */
import { ANSWERED_BY_GATEWAY, ANSWERED_BY_HEADER } from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { BROKEN, type FaultServer, faultServer, type Step } from '../testing/fault-server.ts';
import { recordedPace } from '../testing/recorded-pace.ts';
import { CHECKPOINT_ID, sandboxView, sessionView } from '../testing/views.ts';
import { Torpor } from './client.ts';
import { Sandbox } from './sandbox/sandbox.ts';
import type { Session } from './sessions.ts';

const JOB = 'job_aaaaaaaaaaaaaaaaaaaa';
/** The gateway's response for a request that was not dispatched; an app can forge the same body. */
const NOT_DISPATCHED = JSON.stringify({
  error: { code: 'unreachable', message: 'm', retryable: true, hint: 'h', details: { dispatched: false } },
});
const RETRIED = [425, 429, 502, 503, 504];
const ANSWERS = [409, 421, 500, ...RETRIED];

let server: FaultServer;
let torpor: Torpor;
let sandbox: Sandbox;
let session: Session;
beforeAll(async () => {
  server = await faultServer();
  torpor = new Torpor({ url: server.url, apiKey: 'k', env: {}, pace: recordedPace() });
});
beforeEach(async () => {
  server.play({ status: 200, body: JSON.stringify(sandboxView()) });
  sandbox = await Sandbox.connect(sandboxView().id, { torpor });
  server.play({ status: 200, body: JSON.stringify(sessionView()) });
  session = await torpor.sessions.get(sessionView().id);
});
afterAll(() => server.close());

/** Leaves an idle connection behind, so that the next request reuses it. */
async function useConnection(): Promise<void> {
  server.play(404);
  await sandbox.fetch(3000, '/');
}

const sent = () => server.asked.filter(({ method }) => !['GET', 'HEAD', 'OPTIONS'].includes(method));

async function drain(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream) void _;
}

const MUTATIONS: readonly (readonly [string, () => PromiseLike<unknown>])[] = [
  ['sandbox.pause', () => sandbox.pause()],
  ['sandbox.resume', () => sandbox.resume()],
  ['sandbox.resume with an idempotency key', () => sandbox.resume({}, { idempotencyKey: 'key-1' })],
  ['sandbox.fork', () => sandbox.fork({ count: 2 })],
  ['sandbox.snapshot', () => sandbox.snapshot()],
  ['sandbox.rollback', () => sandbox.rollback(CHECKPOINT_ID)],
  ['sandbox.kill', () => sandbox.kill()],
  ['sandbox.setTimeout', () => sandbox.setTimeout(60)],
  ['sandbox.setNetwork', () => sandbox.setNetwork({ mode: 'none' })],
  ['sandbox.exec', () => sandbox.exec('date')],
  ['sandboxes.exec', () => torpor.sandboxes.exec(sandbox.id, 'date')],
  ['sandbox.exec as a stream', () => drain(sandbox.exec('date'))],
  ['sandbox.start', () => sandbox.start('date')],
  ['sandbox.files.write', () => sandbox.files.write('/a', 'text')],
  ['sandbox.files.write of bytes', () => sandbox.files.write('/a', Uint8Array.of(1, 2))],
  ['sandbox.files.write of a stream', () => sandbox.files.write('/a', new Blob(['a']).stream())],
  ['sandbox.files.remove', () => sandbox.files.remove('/a')],
  ...['POST', 'PUT', 'PATCH', 'DELETE', 'post', 'PURGE'].flatMap((method) => [
    [`sandbox.fetch ${method}`, () => read(sandbox.fetch(3000, '/', { method }))] as const,
    [
      `sandbox.fetch ${method} with a body`,
      () => read(sandbox.fetch(3000, '/', { method, body: 'text', retries: 3 })),
    ] as const,
  ]),
  ['sandboxes.previewLink', () => torpor.sandboxes.previewLink(sandbox.id, { port: 3000 })],
  ['checkpoints.verify', () => torpor.checkpoints.verify(CHECKPOINT_ID)],
  ['checkpoints.delete', () => torpor.checkpoints.delete(CHECKPOINT_ID)],
  ['templates.create', () => torpor.templates.create({ name: 'a', from: CHECKPOINT_ID })],
  ['templates.create of an archive', () => torpor.templates.create({ name: 'a', archive: 'tar' })],
  ['templates.create of an image', () => torpor.templates.create({ name: 'a', image: 'debian:12' })],
  ['templates.publish', () => torpor.templates.publish('a')],
  ['templates.unpublish', () => torpor.templates.unpublish('a')],
  ['templates.delete', () => torpor.templates.delete('a')],
  ['keys.create', () => torpor.keys.create({ name: 'a' })],
  ['keys.revoke', () => torpor.keys.revoke('a')],
  ['page.link', () => torpor.page.link()],
  ['page.signIn', () => torpor.page.signIn({ key: 'a' })],
  ['page.signOut', () => torpor.page.signOut()],
  ['builds.start', () => torpor.builds.start({ project_id: 'a', goal: 'b' })],
  ['builds.cancel', () => torpor.builds.cancel(JOB)],
  ['builds.resume', () => torpor.builds.resume(JOB)],
  ['builds.snapshot', () => torpor.builds.snapshot(JOB)],
  ['builds.rebuild', () => torpor.builds.rebuild(JOB)],
  ['builds.confirm', () => torpor.builds.confirm(JOB)],
  ['sessions.getOrSpawn', () => torpor.sessions.getOrSpawn('a', { program: { command: 'b' } })],
  ['session.send', () => session.send('hello')],
  ['session.post', () => session.post('hello')],
  ['session.stream', () => drain(session.stream('hello'))],
  ['session.rebind', () => session.rebind()],
  ['session.end', () => session.end()],
  ['fsck', () => torpor.fsck()],
];

async function read(asked: Promise<Response>): Promise<void> {
  await (await asked).arrayBuffer();
}

describe.each(MUTATIONS)('%s', (_, mutate) => {
  const settled = () => Promise.resolve(mutate()).catch(() => undefined);

  it('is sent once, whatever the response (R53, R55, R65, R103)', async () => {
    for (const status of ANSWERS) {
      for (const headers of [{}, { [ANSWERED_BY_HEADER]: ANSWERED_BY_GATEWAY }]) {
        await useConnection();
        server.play({ status, headers, body: NOT_DISPATCHED });
        await settled();
        expect({ status, sent: sent().length }).toEqual({ status, sent: 1 });
      }
    }
  });

  it('is sent once, however the connection breaks (R53, R55)', async () => {
    for (const fault of BROKEN) {
      await useConnection();
      server.play(fault);
      await settled();
      expect({ fault, sent: sent().length }).toEqual({ fault, sent: 1 });
    }
  });
});

describe.each([
  ['sandbox.open', () => sandbox.open('date')],
  ['sandbox.shell', () => sandbox.shell()],
] as const)('%s', (_, open) => {
  it('opens its WebSocket once (R55)', async () => {
    for (const step of [...ANSWERS, ...BROKEN]) {
      await useConnection();
      server.play(step);
      await expect(open()).rejects.toThrow();
      const wishes = server.asked.filter(({ headers }) => headers['upgrade'] === 'websocket');
      expect({ step, sent: wishes.length }).toEqual({ step, sent: 1 });
    }
  });
});

describe.each([
  ['Sandbox.create', () => Sandbox.create({ name: 'web' }, { torpor })],
  ['Sandbox.getOrCreate', () => Sandbox.getOrCreate('web', {}, { torpor })],
] as const)('%s', (_, create) => {
  const made: Step = { status: 201, body: JSON.stringify(sandboxView({ name: 'web' })) };
  const keys = () => sent().map(({ headers }) => headers['idempotency-key']);

  it('is repeated under the same idempotency key, on the five statuses and on broken connections', async () => {
    for (const step of [...RETRIED, ...BROKEN]) {
      await useConnection();
      server.play(step, step, made);
      expect((await create()).name).toBe('web');
      expect({ step, sent: sent().length }).toEqual({ step, sent: 3 });
      expect(keys()[0]).toMatch(/^[0-9a-f]{32}$/);
      expect(new Set(keys()).size).toBe(1);
      expect(new Set(sent().map(({ body }) => body)).size).toBe(1);
    }
  });

  it('has one budget of retries, and returns the last response (R57, R59)', async () => {
    server.play(503, 'reset', 429, 'close', { status: 502, body: NOT_DISPATCHED });
    await expect(create()).rejects.toMatchObject({ code: 'unreachable', status: 502 });
    expect(sent()).toHaveLength(6);
    expect(new Set(keys()).size).toBe(1);
  });

  it('is sent once when the response is final (R52, R103)', async () => {
    for (const status of [400, 401, 403, 404, 409, 410, 421, 422, 500, 501, 507]) {
      server.play(status);
      await expect(create()).rejects.toMatchObject({ status });
      expect({ status, sent: sent().length }).toEqual({ status, sent: 1 });
    }
  });
});
