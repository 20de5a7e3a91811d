import { setTimeout as delay } from 'node:timers/promises';
import { TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ask, type FakeSandboxes, type GatewayWorld, makeGatewayWorld } from '../../testing/index.ts';

const BROWSER = {
  accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8',
  'sec-fetch-mode': 'navigate',
};
const STATUS = '/.well-known/torpor/status';

let world: GatewayWorld;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;
async function begin(momentMs: number): Promise<void> {
  world = await makeGatewayWorld({ settings: { momentMs, failureMs: 20, lookAgainMs: 5, portGraceMs: 30 } });
  sandbox = world.sandboxes.make({ state: 'paused', startedAt: Date.now() });
  host = world.hostOf(sandbox);
}
/** A moment that is over before anything has woken, and one that no test waits for. */
const SHORT_MS = 40;
const LONG_MS = 60_000;
afterEach(() => world[Symbol.asyncDispose]());

const visit = (headers: Record<string, string> = BROWSER, path = '/') =>
  ask(world.port, host, { headers, path });
const status = async () =>
  (await visit({}, STATUS)).json<{ state: string; ready: boolean; over: boolean; title: string }>();

describe('a person at the door of a sandbox that sleeps', () => {
  beforeEach(() => begin(SHORT_MS));

  it('gets a page after a moment, which is whole in itself, and the wake goes on', async () => {
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    await world.serve(sandbox, (_, response) => response.end('the app'));
    const page = await visit();
    expect(page.status).toBe(503);
    expect(page.headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'retry-after': '1',
      'cache-control': 'no-store',
    });
    expect(page.text).toContain('Waking up');
    expect(page.headers['content-security-policy']).toContain("default-src 'none'");
    expect(page.text).not.toMatch(/\b(?:src|href)="(?!data:)/);
    expect(page.text).not.toMatch(/https?:\/\//);
    expect(world.gateway.held).toBe(0);
    expect(await status()).toMatchObject({ ready: false, over: false, title: 'Waking up' });
    waking.resolve();
    while (!(await status()).ready) await delay(5);
    expect(await visit()).toMatchObject({ status: 200, text: 'the app' });
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('gets its page also while the sandbox falls asleep, and it is woken after that', async () => {
    world.sandboxes.become(sandbox.id, { state: 'running' });
    await world.serve(sandbox, (_, response) => response.end('the app'));
    await world.gateway.gate.close(sandbox.id);
    world.sandboxes.become(sandbox.id, { state: 'pausing' });
    expect((await visit()).text).toContain('Just a moment');
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    await world.gateway.gate.open(sandbox.id);
    while (!(await status()).ready) await delay(5);
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('gets it also while a service is still starting', async () => {
    world.sandboxes.become(sandbox.id, { state: 'running', services: [{ name: 'web', port: 3000 }] });
    const page = await visit();
    expect(page.status).toBe(503);
    expect(page.text).toContain('Starting the app');
    expect(await status()).toMatchObject({ ready: false, over: false });
    await world.serve(sandbox, (_, response) => response.end('the app'));
    expect(await status()).toMatchObject({ ready: true });
  });

  it('learns from it when the wake has failed, and the page tries nothing more by itself', async () => {
    sandbox.onWake = async () => {
      await delay(60);
      throw new TorporError('capacity', 'The machine is full.');
    };
    expect((await visit()).status).toBe(503);
    while (!(await status()).over) await delay(5);
    expect(await status()).toMatchObject({ title: 'It did not wake', message: 'The machine is full.' });
    await delay(50);
    for (let i = 0; i < 5; i++) await status();
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('asking how far it is never wakes anybody, and is no use of the sandbox', async () => {
    for (let i = 0; i < 3; i++)
      expect(await status()).toMatchObject({ state: 'paused', ready: false, over: true });
    expect(sandbox.wakes).toHaveLength(0);
    expect(sandbox.leases).toBe(0);
  });
});

describe('a person', () => {
  it('gets the app itself when that takes no more than a moment', async () => {
    await begin(LONG_MS);
    await world.serve(sandbox, (_, response) => response.end('the app'));
    expect(await visit()).toMatchObject({ status: 200, text: 'the app' });
  });

  it('is told that the port of a service is closed, and not to wait, long after the start', async () => {
    await begin(5);
    const services = [{ name: 'web', port: 3000 }];
    world.sandboxes.become(sandbox.id, { state: 'running', startedAt: 0, services });
    const page = await visit();
    expect(page.status).toBe(502);
    expect(page.text).toContain('Nothing is listening here');
  });
});

describe('a program, or a part of a page,', () => {
  beforeEach(() => begin(SHORT_MS));

  it.each([
    ['a program', {}],
    ['one that takes anything', { accept: '*/*' }],
    ['a script', { accept: 'text/html', 'sec-fetch-mode': 'cors' }],
    ['an image', { accept: 'image/avif,image/webp,*/*', 'sec-fetch-mode': 'no-cors' }],
  ])('%s waits for its answer', async (_, headers) => {
    sandbox.onWake = () => delay(120);
    await world.serve(sandbox, (_request, response) => response.end('the app'));
    expect(await visit(headers)).toMatchObject({ status: 200, text: 'the app' });
  });

  it('also a person who sends a form: it must not be sent twice', async () => {
    sandbox.onWake = () => delay(120);
    await world.serve(sandbox, (request, response) => response.end(request.method));
    const answer = await ask(world.port, host, { method: 'POST', headers: BROWSER, body: 'a=b' });
    expect(answer).toMatchObject({ status: 200, text: 'POST' });
  });
});

describe('pages that explain', () => {
  beforeEach(() => begin(LONG_MS));

  it.each([
    ['killed', 410, 'This sandbox is gone'],
    ['lost', 410, 'This sandbox is lost'],
    ['failed', 409, 'This sandbox never ran'],
  ] as const)('%s: %i', async (state, code, title) => {
    world.sandboxes.become(sandbox.id, { state });
    const page = await visit();
    expect(page.status).toBe(code);
    expect(page.text).toContain(`<h1 aria-live="polite">${title}</h1>`);
    expect(page.text).toContain(page.headers['x-request-id']);
  });

  it('a port that is closed, with links to those that are open', async () => {
    world.sandboxes.become(sandbox.id, { state: 'running', startedAt: 0 });
    await world.serve(sandbox, () => {}, 8080);
    const page = await visit();
    expect(page.status).toBe(502);
    expect(page.text).toContain(
      `<a href="http://8080-${sandbox.bare}.sbx.localhost:${world.port}">port 8080</a>`,
    );
  });

  it('a name that leads nowhere', async () => {
    const page = await ask(world.port, `nothing.sbx.localhost:${world.port}`, { headers: BROWSER });
    expect(page.status).toBe(404);
    expect(page.text).toContain('This address leads nowhere');
  });

  it('nothing that comes from outside is taken for HTML', async () => {
    sandbox.onWake = async () => {
      throw new TorporError('conflict', '<script>alert("&")</script>');
    };
    const page = await visit();
    expect(page.text).not.toContain('<script>alert');
    expect(page.text).toContain('&#60;script&#62;alert(&#34;&#38;&#34;)');
  });
});
