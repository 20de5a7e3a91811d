import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ask } from '@torpor/gateway/testing';
import { bareSandboxId, type SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { guestService } from '../wake/guest-app.ts';

/** The gateway in a real server, with sandboxes in the process runtime. */

let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
let server: TorporProcess;
let port: number;
let id: SandboxId;
let isPrivate: SandboxId;

const hostOf = (sandbox: SandboxId, appPort = 3000) =>
  `${appPort}-${bareSandboxId(sandbox)}.sbx.localhost:${port}`;
const get = (asked: Parameters<typeof ask>[2] = {}, sandbox = id, appPort = 3000) =>
  ask(port, hostOf(sandbox, appPort), asked);

beforeAll(async () => {
  dataDir = await makeDataDir();
  server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' });
  port = Number(new URL(server.url).port);
  const services = [guestService()];
  const { sandboxes } = server.torpor;
  ({ id } = await sandboxes.create({ services }));
  ({ id: isPrivate } = await sandboxes.create({ services, preview: 'private' }));
}, 60_000);
afterAll(async () => {
  await server.end();
  await dataDir.remove();
});

describe('a preview', { timeout: 120_000 }, () => {
  it('has the address that the sandbox view shows', async () => {
    const { urls } = await server.torpor.sandboxes.get(id);
    expect(urls).toEqual({ 3000: `http://${hostOf(id)}` });
    const [first] = await server.torpor.sandboxes.ports(id);
    expect(first).toMatchObject({ port: 3000, service: 'web', listening: true, url: urls?.['3000'] });
    expect(await get({ path: '/hello/world' })).toMatchObject({ status: 200, text: 'GET world ' });
  });

  it('is reached by headers and by path too', async () => {
    const byHeaders = await ask(port, '127.0.0.1', {
      headers: { 'E2b-Sandbox-Id': bareSandboxId(id), 'E2b-Sandbox-Port': '3000' },
      path: '/x/headers',
    });
    expect(byHeaders.text).toBe('GET headers ');
    const byPath = await server.torpor.sandboxes.fetch(id, 3000, '/x/path', { method: 'POST', body: 'b' });
    expect(await byPath.text()).toBe('POST path b');
    const withoutKey = await ask(port, '127.0.0.1', { path: `/v1/sandboxes/${id}/ports/3000/` });
    expect(withoutKey).toMatchObject({ status: 401 });
  });

  it('of a paused sandbox wakes it, with its declared service', async () => {
    await server.torpor.sandboxes.pause(id);
    const { urls } = await server.torpor.sandboxes.get(id);
    expect(urls).toEqual({ 3000: `http://${hostOf(id)}` });
    expect(await get({ method: 'POST', path: '/run/woken', body: 'me' })).toMatchObject({
      status: 200,
      text: 'POST woken me',
    });
    expect((await server.torpor.sandboxes.get(id)).state).toBe('running');
  });

  it('of a closed port names the open ports', async () => {
    const answer = await get({}, id, 4567);
    expect(answer.status).toBe(502);
    expect(answer.json()).toMatchObject({ error: { code: 'port_closed', details: { openPorts: [3000] } } });
  });

  it('carries WebSockets', async () => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { host: hostOf(id) } });
    socket.on('open', () => socket.send('hello'));
    const [message] = (await once(socket, 'message')) as [Buffer];
    expect(message.toString()).toBe('hello');
    const closed = once(socket, 'close');
    await server.torpor.sandboxes.pause(id);
    expect((await closed)[0]).toBe(1012);
  });

  it('that is private accepts a link, once, and a token', async () => {
    expect(await get({}, isPrivate)).toMatchObject({ status: 403 });
    const link = await server.torpor.sandboxes.previewLink(isPrivate, { port: 3000 });
    const { pathname, search } = new URL(link.url);
    const first = await get({ path: pathname + search }, isPrivate);
    expect(first).toMatchObject({ status: 303 });
    const cookie = first.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
    expect(await get({ path: '/x/in', headers: { cookie } }, isPrivate)).toMatchObject({ text: 'GET in ' });
    expect(await get({ path: pathname + search }, isPrivate)).toMatchObject({ status: 403 });
    const headers = { [link.header]: link.token };
    expect(await get({ path: '/x/in', headers }, isPrivate)).toMatchObject({ text: 'GET in ' });
  });

  it('does not wake its sandbox for a health question to the agent', async () => {
    await server.torpor.sandboxes.resume(id);
    expect(await get({ path: '/health' }, id, 49983)).toMatchObject({ status: 204 });
    expect(await get({ path: '/metrics' }, id, 49983)).toMatchObject({ status: 401 });
    await server.torpor.sandboxes.pause(id);
    expect(await get({ path: '/health' }, id, 49983)).toMatchObject({ status: 502 });
    expect((await server.torpor.sandboxes.get(id)).state).toBe('paused');
  });

  it('keeps its address and tokens after a restart of the server', async () => {
    const { token, header } = await server.torpor.sandboxes.previewLink(isPrivate, { port: 3000 });
    await server.kill('SIGTERM');
    expect((await stat(join(dataDir.path, 'secret'))).mode & 0o777).toBe(0o600);
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' });
    port = Number(new URL(server.url).port);
    expect(await get({ path: '/x/in', headers: { [header]: token } }, isPrivate)).toMatchObject({
      text: 'GET in ',
    });
  });

  it('of a killed sandbox is 410, and the sandbox view shows no addresses', async () => {
    const { id: doomed } = await server.torpor.sandboxes.create({ services: [guestService()] });
    expect(await get({ path: '/x/y' }, doomed)).toMatchObject({ status: 200 });
    const killed = await server.torpor.sandboxes.kill(doomed);
    expect(await get({}, doomed)).toMatchObject({ status: 410 });
    expect(killed.urls ?? {}).toEqual({});
  });

  it('is counted in the metrics', async () => {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    expect(text).toMatch(/torpor_previews_total\{by="host"\} [1-9]/);
    expect(text).toMatch(/torpor_preview_held 0/);
  });
});
