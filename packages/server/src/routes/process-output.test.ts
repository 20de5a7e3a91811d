import { createServer } from 'node:net';
import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { framesOf, type ReadFrame } from '../../testing/event-frames.ts';
import { type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: string;
let id: SandboxId;
beforeAll(async () => {
  server = await testServer();
  url = await server.listen();
  id = await server.create();
});
afterAll(() => server.dispose());

function ask(path: string, key = server.keys.default): Promise<Response> {
  return fetch(`${url}/v1/sandboxes/${id}/${path}`, { headers: { authorization: `Bearer ${key}` } });
}

async function background(command: string): Promise<{ readonly id: string; readonly pid: number }> {
  const answer = await server.ask('POST', `/v1/sandboxes/${id}/exec`, {
    body: { command, background: true },
  });
  return answer.json().process;
}

async function read(response: Response): Promise<ReadFrame[]> {
  const frames: ReadFrame[] = [];
  for await (const frame of framesOf(response)) if (frame.event !== undefined) frames.push(frame);
  return frames;
}

const text = (frames: readonly ReadFrame[], channel: string) =>
  frames.flatMap(({ event, data }) => (event === channel ? [(data as { data: string }).data] : [])).join('');

describe('the output of a process', () => {
  it('has the output so far and ends', async () => {
    const process = await background('echo one; echo two >&2; sleep 4720');
    let frames: ReadFrame[] = [];
    await expect
      .poll(async () => {
        frames = await read(await ask(`processes/${process.id}/output`));
        return text(frames, 'stderr');
      })
      .toBe('two\n');
    expect(text(frames, 'stdout')).toBe('one\n');
    expect(frames[0]).toMatchObject({ event: 'start', data: { pid: process.pid } });
    expect(frames.some(({ event }) => event === 'end')).toBe(false);
  });

  it('continues until the process ends when the client follows', async () => {
    const process = await background('echo begun; sleep 0.3; echo late; exit 4');
    const frames = await read(await ask(`processes/${process.pid}/output?follow=true`));
    expect(text(frames, 'stdout')).toBe('begun\nlate\n');
    expect(frames.at(-1)).toMatchObject({ event: 'end', data: { exitCode: 4, signal: null } });
  });

  it('is 404 for an unknown process and for another organisation (R104)', async () => {
    expect((await ask('processes/nobody/output')).status).toBe(404);
    const process = await background('sleep 4721');
    expect((await ask(`processes/${process.id}/output`, server.keys.other)).status).toBe(404);
  });

  it('does not wake a paused sandbox', async () => {
    const asleep = await server.create();
    await server.ask('POST', `/v1/sandboxes/${asleep}/pause`);
    const headers = { authorization: `Bearer ${server.keys.default}` };
    const response = await fetch(`${url}/v1/sandboxes/${asleep}/processes/1/output`, { headers });
    expect(response.status).toBe(409);
    expect((await server.ask('GET', `/v1/sandboxes/${asleep}`)).json().state).toBe('paused');
  });
});

describe('the ports of a sandbox', () => {
  it('are the declared and the open ones', async () => {
    const free = await freePort();
    await background(`node -e "require('net').createServer().listen(${free}, '127.0.0.1')"`);
    await expect
      .poll(async () => ((await (await ask('ports')).json()) as { items: unknown[] }).items, {
        timeout: 20_000,
      })
      .toMatchObject([{ port: free, listening: true, service: null }]);
  });

  it('are only the declared ones while it is paused', async () => {
    const asleep = await server.create({ services: [{ name: 'app', command: 'true', port: 3000 }] });
    await server.ask('POST', `/v1/sandboxes/${asleep}/pause`);
    const headers = { authorization: `Bearer ${server.keys.default}` };
    const response = await fetch(`${url}/v1/sandboxes/${asleep}/ports`, { headers });
    expect(await response.json()).toMatchObject({
      items: [{ port: 3000, service: 'app', listening: false, pid: null }],
    });
    expect((await server.ask('GET', `/v1/sandboxes/${asleep}`)).json().state).toBe('paused');
  });
});

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => probe.once('listening', resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
