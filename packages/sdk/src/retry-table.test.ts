/** How often and at which intervals a request is sent, and its result: every status and every fault, by method. */
import { ANSWERED_BY_HEADER } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FaultServer, faultServer, type Step } from '../testing/fault-server.ts';
import { type RecordedPace, recordedPace } from '../testing/recorded-pace.ts';
import { sandboxView } from '../testing/views.ts';
import { KilledError, NotFoundError, PortClosedError, UnreachableError } from './errors.ts';
import { Sandbox } from './sandbox/sandbox.ts';
import { gatewayErrorOf, type TransportOptions } from './transport.ts';

const READS = ['GET', 'HEAD', 'OPTIONS'];
const MUTATIONS = ['POST', 'PUT', 'PATCH', 'DELETE'];
const METHODS = [...READS, ...MUTATIONS];
const WAKING = [425, 429, 502, 503, 504];
const ALL_GAPS = [200, 400, 800, 1600, 2000];

interface Row {
  readonly sent: number;
  readonly gaps: readonly number[];
  /** The status of the response, or `thrown`. */
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
  // `fetch` handles these two itself: it takes an unexpected 100 for a broken connection, and refuses 101.
  if (status === 100) return isRead ? allTries('thrown') : once('thrown');
  if (status === 101) return once('thrown');
  if (isRead && WAKING.includes(status)) return allTries(status);
  // A status below 200 precedes the final response.
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
  it.each(READS)('of %s is repeated (R56, R58, R59)', async (method) => {
    const { sandbox, pace } = await connect();
    // A response to HEAD has no body that could break.
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

  it.each(METHODS)('at a port without a listener: %s (R53, R56)', async (method) => {
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

  it('in a response of unknown length is thrown to its reader, who has read its beginning', async () => {
    const { sandbox } = await connect();
    server.play('truncated chunks');
    const response = await sandbox.fetch(3000, '/');
    expect(response.status).toBe(200);
    await expect(response.text()).rejects.toThrow();
    expect(server.asked).toHaveLength(1);
  });
});

describe('a response that undici would act on', () => {
  it.each([407, 421])('is returned with its headers and its body: %i (R52)', async (status) => {
    const { sandbox } = await connect();
    for (const method of METHODS) {
      server.play({ status, headers: { 'x-mark': 'kept' }, body: '{"kept":true}' });
      const response = await sandbox.fetch(3000, '/', { method });
      expect([response.status, response.headers.get('x-mark')]).toEqual([status, 'kept']);
      expect(await response.text()).toBe(method === 'HEAD' ? '' : '{"kept":true}');
      expect(server.asked).toHaveLength(1);
    }
  });

  it('is not confused with a 599 of the app (R52)', async () => {
    const { sandbox } = await connect();
    server.play({ status: 599, body: 'own' });
    const response = await sandbox.fetch(3000, '/', { method: 'POST' });
    expect([response.status, await response.text()]).toEqual([599, 'own']);
  });
});

describe('an error of the gateway', () => {
  const refusal = (code: string) => JSON.stringify({ error: { code, message: 'm', retryable: false } });
  const gateway = { [ANSWERED_BY_HEADER]: 'gateway' };

  it.each([
    [404, 'not_found', NotFoundError],
    [410, 'killed', KilledError],
    [502, 'port_closed', PortClosedError],
    [503, 'unreachable', UnreachableError],
  ])("%i is distinguished from an app's same response by its header (R59)", async (status, code, kind) => {
    const { sandbox } = await connect();
    server.play({ status, headers: gateway, body: refusal(code) });
    const refused = await sandbox.fetch(3000, '/');
    expect(await gatewayErrorOf(refused)).toBeInstanceOf(kind);
    expect(await gatewayErrorOf(refused)).toMatchObject({ code, status });
    expect(await refused.text()).toBe(refusal(code));
    server.play({ status, body: refusal(code) });
    const ofApp = await sandbox.fetch(3000, '/');
    expect(await gatewayErrorOf(ofApp)).toBeUndefined();
    expect([ofApp.status, await ofApp.text()]).toEqual([status, refusal(code)]);
  });

  it("is classified by its status when it is a page or has E2B's format", async () => {
    const { sandbox } = await connect();
    server.play({ status: 502, headers: gateway, body: '<html></html>' });
    expect(await gatewayErrorOf(await sandbox.fetch(3000, '/'))).toMatchObject({ code: 'unreachable' });
    server.play({ status: 200, headers: gateway });
    expect(await gatewayErrorOf(await sandbox.fetch(3000, '/'))).toBeUndefined();
  });
});
