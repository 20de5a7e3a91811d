/** Behaviour that E2B's own test suites check and the program in this folder does not. */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import * as current from 'e2b';
import * as old from 'e2b-old';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type E2bServer, e2bServer, optionsOf } from './e2b-server.ts';

const PATIENCE_MS = 300_000;

let world: E2bServer;
let options: ReturnType<typeof optionsOf>;

beforeAll(async () => {
  world = await e2bServer('http', 'process');
  options = optionsOf(world);
}, PATIENCE_MS);
afterAll(() => world.dispose(), PATIENCE_MS);

describe.each([
  ['2.51', current],
  ['2.45', old as unknown as typeof current],
])('the e2b package %s', (_, { Sandbox, FilesystemEventType }) => {
  const create = (metadata: Record<string, string> = {}) =>
    Sandbox.create({ ...options, timeoutMs: 300_000, metadata });

  it('uploads a form field without a file name to a signed URL', async () => {
    const sandbox = await create();
    const form = new FormData();
    form.append('file', 'file content');
    const url = await sandbox.uploadUrl('hello.txt', { useSignatureExpiration: 60 });
    const answer = await fetch(url, { method: 'POST', body: form });
    expect([answer.status, await answer.json()]).toMatchObject([200, [{ name: 'hello.txt', type: 'file' }]]);
    expect(await sandbox.files.read('hello.txt')).toBe('file content');
    await sandbox.kill();
  });

  it('gets exactly {code, message} for a refused signature', async () => {
    const sandbox = await create();
    await sandbox.files.write('hello.txt', 'hello');
    const good = await sandbox.downloadUrl('hello.txt', { useSignatureExpiration: 60 });
    const expired = await sandbox.downloadUrl('hello.txt', { useSignatureExpiration: -60 });
    const bodyOf = async (url: string) => (await fetch(url)).json();
    expect(await bodyOf(expired)).toEqual({ code: 401, message: 'signature is already expired' });
    expect(await bodyOf(good.replace('hello.txt', 'x'))).toEqual({ code: 401, message: 'invalid signature' });
    expect(await bodyOf(good.replace(/signature=[^&]+&?/, ''))).toEqual({
      code: 401,
      message: 'missing signature query parameter',
    });
    await sandbox.kill();
  });

  it('lists sandboxes without a page after the last, full one', async () => {
    const mine = { test: `pages ${_}` };
    const made = [await create(mine), await create(mine)];
    const list = Sandbox.list({ ...options, limit: 1, query: { metadata: mine } });
    const pages: number[] = [];
    while (list.hasNext) pages.push((await list.nextItems()).length);
    expect(pages).toEqual([1, 1]);
    for (const sandbox of made) await sandbox.kill();
  });

  it('lists snapshots without a page after the last, full one', async () => {
    const sandbox = await create();
    await sandbox.createSnapshot();
    await sandbox.createSnapshot();
    const list = Sandbox.listSnapshots({ ...options, sandboxId: sandbox.sandboxId, limit: 2 });
    expect(await list.nextItems()).toHaveLength(2);
    expect(list.hasNext).toBe(false);
    await sandbox.kill();
  });

  it('gets 502 from getHost() of a killed sandbox, and a browser gets a page', async () => {
    const sandbox = await create();
    const host = sandbox.getHost(3000);
    await sandbox.kill();
    const answer = await requestHost(host, { accept: '*/*' });
    expect([answer.status, JSON.parse(answer.body)]).toEqual([
      502,
      { sandboxId: sandbox.sandboxId, message: 'The sandbox was not found', code: 502 },
    ]);
    const page = await requestHost(host, { accept: 'text/html,*/*;q=0.8' });
    expect(page.body).toMatch(/^<!doctype html>/i);
  });

  it('gets create, chmod and write events for a file that it writes below a watched directory', async () => {
    const sandbox = await create();
    await sandbox.files.makeDir('watched/below');
    const seen: string[] = [];
    const watch = await sandbox.files.watchDir(
      'watched',
      ({ name, type }) => {
        if (name === 'below/a.txt') seen.push(type);
      },
      { recursive: true },
    );
    await sandbox.files.write('watched/below/a.txt', 'content');
    await expect.poll(() => seen).toContain(FilesystemEventType.WRITE);
    expect([...seen].sort()).toEqual(['chmod', 'create', 'write']);
    await watch.stop();
    await sandbox.kill();
  });
});

/** Node does not resolve names below localhost, so the request goes to the server's address with that Host. */
async function requestHost(host: string, headers: Record<string, string>) {
  const sent = request(world.server.url, { headers: { ...headers, host } });
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: answer.statusCode, body: await text(answer) };
}
