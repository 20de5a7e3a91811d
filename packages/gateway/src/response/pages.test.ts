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
/** One `momentMs` is over before any sandbox has woken; no test waits for the other. */
const SHORT_MS = 40;
const LONG_MS = 60_000;
afterEach(() => world[Symbol.asyncDispose]());

const navigate = (headers: Record<string, string> = BROWSER, path = '/') =>
  ask(world.port, host, { headers, path });
const status = async () =>
  (await navigate({}, STATUS)).json<{ state: string; ready: boolean; over: boolean; title: string }>();

describe('a browser that navigates to a sandbox that sleeps', () => {
  beforeEach(() => begin(SHORT_MS));

  it('gets a self-contained waiting page after momentMs, and the wake goes on', async () => {
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    await world.serve(sandbox, (_, response) => response.end('the app'));
    const page = await navigate();
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
    expect(world.gateway.queuedRequests).toBe(0);
    expect(await status()).toMatchObject({ ready: false, over: false, title: 'Waking up' });
    waking.resolve();
    while (!(await status()).ready) await delay(5);
    expect(await navigate()).toMatchObject({ status: 200, text: 'the app' });
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('gets the waiting page while the sandbox is being paused, and the sandbox is woken after that', async () => {
    world.sandboxes.become(sandbox.id, { state: 'running' });
    await world.serve(sandbox, (_, response) => response.end('the app'));
    await world.gateway.gates.close(sandbox.id);
    world.sandboxes.become(sandbox.id, { state: 'pausing' });
    expect((await navigate()).text).toContain('Just a moment');
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    await world.gateway.gates.open(sandbox.id);
    while (!(await status()).ready) await delay(5);
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('gets the waiting page while a service is still starting', async () => {
    world.sandboxes.become(sandbox.id, { state: 'running', services: [{ name: 'web', port: 3000 }] });
    const page = await navigate();
    expect(page.status).toBe(503);
    expect(page.text).toContain('Starting the app');
    expect(await status()).toMatchObject({ ready: false, over: false });
    await world.serve(sandbox, (_, response) => response.end('the app'));
    expect(await status()).toMatchObject({ ready: true });
  });

  it('learns from the status that the wake has failed, and the page stops polling', async () => {
    sandbox.onWake = async () => {
      await delay(60);
      throw new TorporError('capacity', 'The machine is full.');
    };
    expect((await navigate()).status).toBe(503);
    while (!(await status()).over) await delay(5);
    expect(await status()).toMatchObject({ title: 'It did not wake', message: 'The machine is full.' });
    await delay(50);
    for (let i = 0; i < 5; i++) await status();
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('never wakes the sandbox by asking for the status, and does not keep it awake', async () => {
    for (let i = 0; i < 3; i++)
      expect(await status()).toMatchObject({ state: 'paused', ready: false, over: true });
    expect(sandbox.wakes).toHaveLength(0);
    expect(sandbox.leases).toBe(0);
  });
});

describe('a browser that navigates', () => {
  it('gets the app itself when it answers within momentMs', async () => {
    await begin(LONG_MS);
    await world.serve(sandbox, (_, response) => response.end('the app'));
    expect(await navigate()).toMatchObject({ status: 200, text: 'the app' });
  });

  it('gets the error page instead of the waiting page when a port is closed long after the start', async () => {
    await begin(5);
    const services = [{ name: 'web', port: 3000 }];
    world.sandboxes.become(sandbox.id, { state: 'running', startedAt: 0, services });
    const page = await navigate();
    expect(page.status).toBe(502);
    expect(page.text).toContain('Nothing is listening here');
  });
});

describe('a program, or a subresource of a page,', () => {
  beforeEach(() => begin(SHORT_MS));

  it.each([
    ['a program', {}],
    ['one that takes anything', { accept: '*/*' }],
    ['a script', { accept: 'text/html', 'sec-fetch-mode': 'cors' }],
    ['an image', { accept: 'image/avif,image/webp,*/*', 'sec-fetch-mode': 'no-cors' }],
  ])('%s waits for its response', async (_, headers) => {
    sandbox.onWake = () => delay(120);
    await world.serve(sandbox, (_request, response) => response.end('the app'));
    expect(await navigate(headers)).toMatchObject({ status: 200, text: 'the app' });
  });

  it('a browser that submits a form waits too: the form must not be sent twice', async () => {
    sandbox.onWake = () => delay(120);
    await world.serve(sandbox, (request, response) => response.end(request.method));
    const answer = await ask(world.port, host, { method: 'POST', headers: BROWSER, body: 'a=b' });
    expect(answer).toMatchObject({ status: 200, text: 'POST' });
  });
});

describe('error pages', () => {
  beforeEach(() => begin(LONG_MS));

  it.each([
    ['killed', 410, 'This sandbox is gone'],
    ['lost', 410, 'This sandbox is lost'],
    ['failed', 409, 'This sandbox never ran'],
  ] as const)('%s: %i', async (state, code, title) => {
    world.sandboxes.become(sandbox.id, { state });
    const page = await navigate();
    expect(page.status).toBe(code);
    expect(page.text).toContain(`<h1 aria-live="polite">${title}</h1>`);
    expect(page.text).toContain(page.headers['x-request-id']);
  });

  it('a closed port, with links to the open ports', async () => {
    world.sandboxes.become(sandbox.id, { state: 'running', startedAt: 0 });
    await world.serve(sandbox, () => {}, 8080);
    const page = await navigate();
    expect(page.status).toBe(502);
    expect(page.text).toContain(
      `<a href="http://8080-${sandbox.bare}.sbx.localhost:${world.port}">port 8080</a>`,
    );
  });

  it('an invalid host name', async () => {
    const page = await ask(world.port, `nothing.sbx.localhost:${world.port}`, { headers: BROWSER });
    expect(page.status).toBe(404);
    expect(page.text).toContain('This address is not valid');
  });

  it('text from outside is escaped', async () => {
    sandbox.onWake = async () => {
      throw new TorporError('conflict', '<script>alert("&")</script>');
    };
    const page = await navigate();
    expect(page.text).not.toContain('<script>alert');
    expect(page.text).toContain('&#60;script&#62;alert(&#34;&#38;&#34;)');
  });
});
