/** What is sent how often, at which gaps, and what comes of it: every status and every fault, by method. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FaultServer, faultServer, type Step } from '../testing/fault-server.ts';
import { type RecordedPace, recordedPace } from '../testing/recorded-pace.ts';
import { sandboxView } from '../testing/views.ts';
import { Sandbox } from './sandbox/sandbox.ts';
import type { TransportOptions } from './transport.ts';

const READS = ['GET', 'HEAD', 'OPTIONS'];
const MUTATIONS = ['POST', 'PUT', 'PATCH', 'DELETE'];
const METHODS = [...READS, ...MUTATIONS];
const WAKING = [425, 429, 502, 503, 504];
const ALL_GAPS = [200, 400, 800, 1600, 2000];

interface Row {
  readonly sent: number;
  readonly gaps: readonly number[];
  /** The status that was answered, or that something was thrown. */
  readonly came: number | 'thrown';
}

let server: FaultServer;
beforeAll(async () => {
  server = await faultServer();
});
afterAll(() => server.close());

async function connect(options: TransportOptions = {}): Promise<{ sandbox: Sandbox; pace: RecordedPace }> {
  const pace = recordedPace();
  server.play({ status: 200, body: JSON.stringify(sandboxView()) });
  const sandbox = await Sandbox.connect('sbx_aaaaaaaaaaaaaaaaaaaa', {
    url: server.url,
    apiKey: 'k',
    env: {},
    pace,
    ...options,
  });
  return { sandbox, pace };
}

async function rowOf(sandbox: Sandbox, pace: RecordedPace, method: string, step: Step): Promise<Row> {
  server.play(step);
  pace.slept.length = 0;
  const came = await sandbox.fetch(3000, '/', { method }).then(
    async (response) => {
      await response.arrayBuffer();
      return response.status;
    },
    () => 'thrown' as const,
  );
  return { sent: server.asked.length, gaps: [...pace.slept], came };
}

const once = (came: Row['came']): Row => ({ sent: 1, gaps: [], came });
const allTries = (came: Row['came']): Row => ({ sent: 6, gaps: ALL_GAPS, came });

function expectedOf(method: string, status: number): Row {
  const isRead = READS.includes(method);
  // These four never reach our rules: fetch takes an unasked 100 for a broken connection, refuses 101 and
  // 407, and repeats a 421 by itself.
  if (status === 100) return isRead ? allTries('thrown') : once('thrown');
  if (status === 101 || status === 407) return once('thrown');
  if (status === 421) return { sent: 2, gaps: [], came: 421 };
  if (isRead && WAKING.includes(status)) return allTries(status);
  // What is below 200 announces the real answer.
  return once(Math.max(status, 200));
}

describe('every status', () => {
  it.each(METHODS)('of %s (R51, R52, R53, R58, R59)', { timeout: 60_000 }, async (method) => {
    const { sandbox, pace } = await connect();
    for (let status = 100; status < 600; status++) {
      const row = await rowOf(sandbox, pace, method, status);
      expect({ status, ...row }).toEqual({ status, ...expectedOf(method, status) });
    }
  });
});

const BEFORE_HEADERS: Step[] = ['close', 'reset'];
const IN_HEADERS: Step[] = ['half headers', 'reset in headers'];
const IN_BODY: Step[] = ['truncated', 'reset in body'];

describe('every broken connection', () => {
  it.each(READS)('of %s is tried again (R56, R58, R59)', async (method) => {
    const { sandbox, pace } = await connect();
    // The answer to HEAD has no body that could break.
    const faults = [...BEFORE_HEADERS, ...IN_HEADERS, ...(method === 'HEAD' ? [] : IN_BODY)];
    for (const fault of faults) {
      const row = await rowOf(sandbox, pace, method, fault);
      expect({ fault, ...row }).toEqual({ fault, ...allTries('thrown') });
    }
  });

  it.each(MUTATIONS)('of %s is thrown at once (R53)', async (method) => {
    const { sandbox, pace } = await connect();
    for (const fault of [...BEFORE_HEADERS, ...IN_HEADERS, ...IN_BODY]) {
      const row = await rowOf(sandbox, pace, method, fault);
      expect({ fault, ...row }).toEqual({ fault, ...once('thrown') });
    }
  });

  it.each(METHODS)('where nobody listens: %s (R53, R56)', async (method) => {
    const gone = await faultServer();
    await gone.close();
    let sent = 0;
    const { sandbox, pace } = await connect({
      fetch: (request, init) => {
        const { pathname } = new URL((request as Request).url);
        if (!pathname.includes('/ports/')) return fetch(request, init);
        sent++;
        return fetch(gone.url + pathname, { ...init, method: (request as Request).method });
      },
    });
    await expect(sandbox.fetch(3000, '/', { method })).rejects.toMatchObject({
      cause: { code: 'ECONNREFUSED' },
    });
    const isRead = READS.includes(method);
    expect({ sent, gaps: pace.slept }).toEqual({ sent: isRead ? 6 : 1, gaps: isRead ? ALL_GAPS : [] });
  });

  it('in an answer of unknown length is thrown to whoever reads it, since its beginning is out', async () => {
    const { sandbox } = await connect();
    server.play('truncated chunks');
    const response = await sandbox.fetch(3000, '/');
    expect(response.status).toBe(200);
    await expect(response.text()).rejects.toThrow();
    expect(server.asked).toHaveLength(1);
  });
});

describe('a mutation', () => {
  const error = (dispatched: unknown, code = 'unreachable') =>
    JSON.stringify({ error: { code, message: 'm', retryable: true, hint: 'h', details: { dispatched } } });
  const proof = { status: 503, body: error(false) };
  const post = (sandbox: Sandbox, body: RequestInit['body']) =>
    sandbox.fetch(3000, '/', { method: 'POST', body });

  it('is sent again when the answer proves that it was not dispatched, with the same body (R65)', async () => {
    for (const body of ['text', new TextEncoder().encode('text'), new Blob(['text'])]) {
      const { sandbox, pace } = await connect();
      server.play(proof, { ...proof, headers: { 'retry-after': '1' } }, 201);
      expect((await post(sandbox, body)).status).toBe(201);
      expect(server.asked.map((asked) => asked.body)).toEqual(['text', 'text', 'text']);
      expect(pace.slept).toEqual([200, 1000]);
    }
  });

  it('has the same budget for that, and the last answer is the answer (R57, R59)', async () => {
    const { sandbox, pace } = await connect();
    server.play(proof);
    const response = await post(sandbox, 'text');
    expect([response.status, await response.text()]).toEqual([503, proof.body]);
    expect(server.asked).toHaveLength(6);
    expect(pace.slept).toEqual(ALL_GAPS);
  });

  it.each<[string, Step]>([
    ['a bare 503', 503],
    ['a 503 that says it was dispatched', { status: 503, body: error(true) }],
    ['a 503 that does not say', { status: 503, body: error(undefined) }],
    ['a word that is not plainly no', { status: 503, body: error('false') }],
    ['a code that is none of ours', { status: 503, body: error(false, 'busy') }],
    ['a body that is not JSON', { ...proof, body: 'dispatched: false' }],
    ['a type that is not JSON', { ...proof, headers: { 'content-type': 'text/html' } }],
    ['a length that no error of ours has', { ...proof, body: error(false) + ' '.repeat(70_000) }],
    ['a status that is not of a sandbox that wakes', { ...proof, status: 500 }],
    ['a conflict', { ...proof, status: 409 }],
    ['a good answer', { ...proof, status: 200 }],
  ])('is not sent again for %s (R65)', async (_, step) => {
    const { sandbox } = await connect();
    server.play(step);
    await post(sandbox, 'text');
    expect(server.asked).toHaveLength(1);
  });

  it('with a stream for a body is not sent again, even with the proof (R65)', async () => {
    const { sandbox } = await connect();
    server.play(proof);
    expect((await post(sandbox, new Blob(['once']).stream())).status).toBe(503);
    async function* pieces() {
      yield new TextEncoder().encode('once');
    }
    server.play(proof);
    expect((await post(sandbox, pieces() as unknown as ReadableStream)).status).toBe(503);
    expect(server.asked).toHaveLength(1);
  });

  it('of the lifecycle is not sent again for such an answer: it is not passed on anywhere (R103)', async () => {
    const { sandbox } = await connect();
    for (const mutate of [
      () => sandbox.resume(),
      () => sandbox.pause(),
      () => sandbox.fork(),
      () => sandbox.snapshot(),
      () => sandbox.rollback('ckpt_bbbbbbbbbbbbbbbbbbbb'),
      () => sandbox.setTimeout(60),
      () => sandbox.kill(),
    ]) {
      server.play(proof);
      await expect(mutate()).rejects.toMatchObject({ code: 'unreachable', status: 503 });
      expect(server.asked).toHaveLength(1);
    }
  });

  it('is a command too, and a file that is written (R55, R65)', async () => {
    const { sandbox } = await connect();
    const written = { status: 200, body: '{"path":"/a","name":"a"}' };
    server.play(proof, written);
    await sandbox.files.write('/a', 'text');
    expect(server.asked.map((asked) => asked.body)).toEqual(['text', 'text']);
    for (const step of [503, 'reset'] as const) {
      for (const mutate of [() => sandbox.files.write('/a', 'text'), async () => sandbox.exec('date')]) {
        server.play(step);
        await expect(mutate()).rejects.toThrow();
        expect(server.asked).toHaveLength(1);
      }
    }
  });
});
