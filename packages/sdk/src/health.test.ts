/** Typed reads through the public client: retries happen before any error is thrown. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type FaultServer, faultServer, type Step } from '../testing/fault-server.ts';
import { recordedPace } from '../testing/recorded-pace.ts';
import { SANDBOX_ID, sandboxHealth, sandboxView } from '../testing/views.ts';
import { InternalError, NotFoundError } from './errors.ts';
import { Sandbox } from './sandbox/sandbox.ts';

const drive = {
  path: '/',
  totalBytes: 100,
  usedBytes: 40,
  freeBytes: 60,
  limitBytes: 50,
  countedBytes: 10,
};
const DRIVES: Step = { status: 200, body: JSON.stringify({ items: [drive], nextCursor: null }) };
const HEALTH: Step = { status: 200, body: JSON.stringify(sandboxHealth()) };

let server: FaultServer;
let sandbox: Sandbox;
beforeAll(async () => {
  server = await faultServer();
});
beforeEach(async () => {
  server.play({ status: 200, body: JSON.stringify(sandboxView()) });
  const options = { url: server.url, apiKey: 'k', env: {}, pace: recordedPace() };
  sandbox = await Sandbox.connect(SANDBOX_ID, options);
});
afterAll(() => server.close());

describe.each([
  ['health', HEALTH, sandboxHealth(), () => sandbox.health()],
  ['drives', DRIVES, [drive], () => sandbox.drives()],
] as const)('sandbox.%s', (name, good, expected, ask) => {
  it('is one GET, and returns the response', async () => {
    server.play(good);
    expect(await ask()).toEqual(expected);
    expect(server.asked).toMatchObject([{ method: 'GET', path: `/v1/sandboxes/${SANDBOX_ID}/${name}` }]);
  });

  it('succeeds after two responses with 503 (R54, R61)', async () => {
    server.play(503, { status: 503, body: '<html>busy</html>' }, good);
    expect(await ask()).toEqual(expected);
    expect(server.asked).toHaveLength(3);
  });

  it.each([425, 429, 502, 503, 504, 'close', 'reset', 'truncated'] as const)(
    'survives %s (R54, R56)',
    async (step) => {
      server.play(step, good);
      expect(await ask()).toEqual(expected);
      expect(server.asked).toHaveLength(2);
    },
  );

  it.each([
    ['an empty body', ''],
    ['something that is not JSON', '<html></html>'],
    ['another form', '{}'],
    ['a null', 'null'],
  ])('is an error when the 200 after the retries has %s (R62)', async (_, body) => {
    server.play(503, 503, { status: 200, body });
    await expect(ask()).rejects.toBeInstanceOf(InternalError);
    expect(server.asked).toHaveLength(3);
  });

  it('throws a typed error for an unknown id, after one request', async () => {
    const error = { code: 'not_found', message: 'There is no such sandbox.', retryable: false };
    server.play({ status: 404, body: JSON.stringify({ error }) });
    await expect(ask()).rejects.toBeInstanceOf(NotFoundError);
    expect(server.asked).toHaveLength(1);
  });
});
