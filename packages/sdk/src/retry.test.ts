import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BROKEN, type FaultServer, faultServer, type Step } from '../testing/fault-server.ts';
import { recordedPace } from '../testing/recorded-pace.ts';
import { backoffMs, realPace, retriesOf, retryAfterMs } from './retry.ts';
import { Transport, type TransportOptions } from './transport.ts';

const WAKING = [425, 429, 502, 503, 504];
const READS = ['GET', 'HEAD', 'OPTIONS'];

let server: FaultServer;
beforeAll(async () => {
  server = await faultServer();
});
afterAll(() => server.close());

function connect(options: TransportOptions = {}) {
  const pace = recordedPace();
  const transport = new Transport({ url: server.url, apiKey: 'k', env: {}, pace, ...options });
  const send = (method: string, more = {}) =>
    transport.send({ method, path: '/health', whole: true, ...more });
  return { pace, transport, send };
}

describe('reads', () => {
  it.each([...READS, 'get', 'Head'])(
    'are recognised by the method in upper or lower case: %s (R63)',
    async (method) => {
      const { send } = connect();
      for (const status of WAKING) {
        server.play(status, 200);
        expect((await send(method)).status).toBe(200);
        expect(server.asked).toHaveLength(2);
        expect(server.asked[1]?.method).toBe(method.toUpperCase());
      }
    },
  );

  it.each(BROKEN)('survive a broken connection: %s (R56)', async (fault) => {
    const { send } = connect();
    server.play(fault, fault, { status: 200, body: '{"whole":true}' });
    const response = await send('GET');
    expect(await response.json()).toEqual({ whole: true });
    expect(server.asked).toHaveLength(3);
  });

  it('survive a refused connection once a server listens again (R56)', async () => {
    const gone = await faultServer();
    await gone.close();
    let tries = 0;
    const { send } = connect({
      fetch: (request, init) => {
        const url = ++tries < 3 ? gone.url : server.url;
        return fetch(`${url}/health`, { ...init, method: (request as Request).method });
      },
    });
    server.play(200);
    expect((await send('GET')).status).toBe(200);
    expect(tries).toBe(3);
  });

  it('are aborted when the rest of a response does not come, and repeated (R56, R64)', async () => {
    const { send } = connect({ attemptTimeoutMs: 50 });
    server.play('stalled', { status: 200, body: '{"whole":true}' });
    const response = await send('GET');
    expect(await response.json()).toEqual({ whole: true });
    expect(server.asked).toHaveLength(2);
  });

  it('have one budget for mixed faults (R57)', async () => {
    const { send, pace } = connect();
    server.play(503, 'reset', 429, 'truncated', 502, 'close', 200);
    await expect(send('GET')).rejects.toThrow();
    expect(server.asked).toHaveLength(6);
    expect(pace.slept).toHaveLength(5);
  });

  it('return the last response unchanged when the budget is used up (R59)', async () => {
    const { send } = connect();
    server.play({ status: 503, headers: { 'x-mark': 'last' }, body: '<h1>busy</h1>' });
    const response = await send('GET');
    expect(response.status).toBe(503);
    expect(response.headers.get('x-mark')).toBe('last');
    expect(await response.text()).toBe('<h1>busy</h1>');
    expect(server.asked).toHaveLength(6);
  });

  it('rethrow the last error when the budget is used up (R59)', async () => {
    const errors: Error[] = [];
    const { send } = connect({
      retries: 2,
      fetch: () => {
        errors.push(
          new TypeError('fetch failed', { cause: Object.assign(new Error(), { code: 'ECONNRESET' }) }),
        );
        return Promise.reject(errors.at(-1));
      },
    });
    const thrown = await send('GET').catch((error: unknown) => error);
    expect(errors).toHaveLength(3);
    expect(thrown).toBe(errors[2]);
  });

  it('are not repeated for an error that carries a status, whatever it says (R60)', async () => {
    let tries = 0;
    const error = Object.assign(new Error('GOAWAY'), { status: 500, code: 'ERR_HTTP2_GOAWAY_SESSION' });
    const { send } = connect({
      fetch: async () => {
        tries++;
        throw error;
      },
    });
    await expect(send('GET')).rejects.toBe(error);
    expect(tries).toBe(1);
    server.play({ status: 500, body: 'GOAWAY ECONNRESET' });
    expect((await connect().send('GET')).status).toBe(500);
    expect(server.asked).toHaveLength(1);
  });

  it('are aborted when no response begins in time, and repeated (R64)', async () => {
    let tries = 0;
    const { send } = connect({
      retries: 2,
      attemptTimeoutMs: 5,
      fetch: (_, init) => {
        tries++;
        return new Promise((_resolve, reject) => {
          init?.signal?.addEventListener('abort', () => reject(init.signal?.reason));
        });
      },
    });
    await expect(send('GET')).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    expect(tries).toBe(3);
  });
});

describe('mutations', () => {
  const keyed = { idempotencyKey: 'key-1', repeatUnderKey: true };

  it('with a stream as body are sent once (R65)', async () => {
    const { send } = connect();
    for (const step of ['reset', 503] as const) {
      server.play(step);
      await send('POST', { body: new Blob(['once']).stream(), ...keyed }).catch(() => undefined);
      expect(server.asked).toHaveLength(1);
    }
  });

  it('without an idempotency key are sent once, even if marked as repeatable (R53)', async () => {
    const { send } = connect();
    server.play(503);
    await send('POST', { json: {}, repeatUnderKey: true });
    expect(server.asked).toHaveLength(1);
  });

  it('that may be repeated have the delays of a read (R58, R64)', async () => {
    const { send, pace } = connect();
    server.play('close', { status: 503, headers: { 'retry-after': '1' } }, { status: 201, body: '{}' });
    expect((await send('POST', { json: { a: 1 }, ...keyed })).status).toBe(201);
    expect(pace.slept).toEqual([200, 1000]);
  });
});

describe('the budget', () => {
  it.each([
    [undefined, 5],
    ['', 5],
    ['abc', 5],
    ['2.5', 5],
    ['1e3', 5],
    ['0', 0],
    ['-3', 0],
    ['2', 2],
    [' 7 ', 7],
  ])('TORPOR_READ_RETRIES=%j means %i (R57)', async (setting, retries) => {
    expect(retriesOf(setting)).toBe(retries);
    const { send } = connect({ env: { TORPOR_READ_RETRIES: setting } });
    server.play(503);
    await send('GET');
    expect(server.asked).toHaveLength(1 + retries);
  });
});

describe('the options', () => {
  it('apply to one call, or to all calls of a client (R57)', async () => {
    server.play(503);
    await connect({ retries: 3 }).send('GET', { retries: 0 });
    expect(server.asked).toHaveLength(1);
    server.play(503);
    await connect({ retries: 0 }).send('GET', { retries: 2 });
    expect(server.asked).toHaveLength(3);
  });

  it.each([
    [Number.NaN, 6],
    [-1, 1],
    [Number.POSITIVE_INFINITY, 9],
  ])('never cause endless retries: %d (R57)', async (retries, sent) => {
    server.play(...Array<Step>(8).fill(503), 200);
    await connect({ retries }).send('GET');
    expect(server.asked).toHaveLength(sent);
  });

  it('set the delays too (R113)', async () => {
    const { send, pace } = connect({ backoff: { baseMs: 10, capMs: 35 } });
    server.play({ status: 503, headers: { 'retry-after': '1' } }, 503);
    await send('GET');
    expect(pace.slept).toEqual([35, 20, 35, 35, 35]);
  });
});

describe('the delay', () => {
  it('doubles from 0.2 s to 2 s (R58)', async () => {
    const { send, pace } = connect({ retries: 7 });
    server.play(503);
    await send('GET');
    expect(pace.slept).toEqual([200, 400, 800, 1600, 2000, 2000, 2000]);
  });

  it('has at most 0.2 s of jitter (R58)', () => {
    expect(backoffMs(1, () => 0.5)).toBe(300);
    expect(backoffMs(60, () => 0.999)).toBeLessThan(2200);
  });

  it('follows Retry-After, up to 2 s (R64)', async () => {
    for (const [header, expected] of [
      ['1', 1000],
      ['60', 2000],
      ['0', 200],
      ['soon', 200],
      ['Thu, 01 Jan 2026 00:00:01 GMT', 1000],
    ] as const) {
      const { send, pace } = connect({ retries: 1 });
      server.play({ status: 503, headers: { 'retry-after': header } }, 200);
      await send('GET');
      expect(pace.slept).toEqual([expected]);
    }
    expect(retryAfterMs('-1', 0)).toBe(0);
  });

  it('ends at once when the caller aborts (R64)', async () => {
    const giveUp = new AbortController();
    const { send } = connect({
      pace: {
        ...realPace,
        sleep: (_, signal) => {
          const slept = realPace.sleep(3_600_000, signal);
          giveUp.abort(new Error('enough'));
          return slept;
        },
      },
    });
    server.play(503);
    await expect(send('GET', { signal: giveUp.signal })).rejects.toThrow('enough');
    expect(server.asked).toHaveLength(1);
  });

  it('does not begin when the caller has aborted during the attempt', async () => {
    const giveUp = new AbortController();
    const { send, pace } = connect({
      fetch: () => {
        giveUp.abort(new Error('enough'));
        return Promise.reject(Object.assign(new Error('gone'), { code: 'ECONNRESET' }));
      },
    });
    await expect(send('GET', { signal: giveUp.signal })).rejects.toThrow('gone');
    expect(pace.slept).toEqual([]);
  });
});
