import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

const health = (id: string) => server.ask('GET', `/v1/sandboxes/${id}/health`);
const drives = (id: string) => server.ask('GET', `/v1/sandboxes/${id}/drives`);
const stateOf = async (id: SandboxId) => (await server.ask('GET', `/v1/sandboxes/${id}`)).json().state;

describe('the health of a sandbox', () => {
  it('says that its agent answers while it runs (R54)', async () => {
    const id = await server.create();
    const answer = await health(id);
    expect(answer.statusCode).toBe(200);
    expect(answer.json()).toMatchObject({
      sandboxId: id,
      state: 'running',
      evidence: 'running',
      generation: 1,
      agent: 'answers',
      agentError: null,
    });
    expect(answer.json().uptimeSeconds).toBeGreaterThanOrEqual(0);
  });

  it('says that it is paused, and does not wake it', async () => {
    const id = await server.create();
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    expect((await health(id)).json()).toMatchObject({
      state: 'paused',
      agent: 'not_running',
      agentError: null,
      uptimeSeconds: null,
    });
    expect(await stateOf(id)).toBe('paused');
  });

  it('says that its agent is silent, and why, when it cannot be reached in time', async () => {
    const hanging = await testServer({
      engineSettings: { observeMs: 50 },
      wrap: (_, runtime) => {
        runtime.agent = () => new Promise<never>(() => {});
        return {};
      },
    });
    const id = await hanging.create();
    const answer = await hanging.ask('GET', `/v1/sandboxes/${id}/health`);
    expect([answer.statusCode, answer.json()]).toMatchObject([
      200,
      { state: 'running', agent: 'silent', agentError: { code: 'timeout', sandboxId: id } },
    ]);
    await hanging.dispose();
  });

  it('says that its agent is silent when it has died', async () => {
    const id = await server.create();
    await health(id);
    await server.runtime.killAgent({ sandboxId: id, generation: 1 });
    const answer = await health(id);
    expect(answer.json()).toMatchObject({ agent: 'silent', agentError: { code: 'unreachable' } });
  });

  it('is also available for a killed sandbox', async () => {
    const id = await server.create();
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
    expect((await health(id)).json()).toMatchObject({ state: 'killed', agent: 'not_running' });
  });

  it('is 404 for an unknown id and for another organisation', async () => {
    const unknown = await health('sbx_00000000000000000000');
    expect([unknown.statusCode, errorIn(unknown).code]).toEqual([404, 'not_found']);
    const id = await server.create();
    const other = await server.ask('GET', `/v1/sandboxes/${id}/health`, { key: server.keys.other });
    expect([other.statusCode, errorIn(other).code]).toEqual([404, 'not_found']);
  });
});

describe('the drives of a sandbox', () => {
  it('are its root, with size and usage (R54)', async () => {
    const id = await server.create();
    const { items, nextCursor } = (await drives(id)).json();
    expect(nextCursor).toBeNull();
    expect(items).toMatchObject([{ path: '/' }]);
    const [{ totalBytes, usedBytes, freeBytes }] = items;
    expect(totalBytes).toBeGreaterThan(0);
    expect(usedBytes + freeBytes).toBeLessThanOrEqual(totalBytes);
  });

  it('are those that programs of the sandbox see, also in E2B’s API; the limit stands beside them', async () => {
    const limited = await testServer({
      wrap: (_, runtime) => {
        Object.assign(runtime, { diskUsage: async () => ({ usedBytes: 700, limitBytes: 1_000 }) });
        return {};
      },
    });
    const id = await limited.create();
    const program = await limited.ask('POST', `/v1/sandboxes/${id}/exec`, {
      body: { command: 'df -B1 --output=size . | tail -1' },
    });
    const size = Number(program.json().stdout);
    const { items } = (await limited.ask('GET', `/v1/sandboxes/${id}/drives`)).json();
    expect(items).toMatchObject([{ path: '/', totalBytes: size, limitBytes: 1_000, countedBytes: 700 }]);
    const own = await limited.ask('GET', `/v1/sandboxes/${id}/metrics`);
    expect(own.json()).toMatchObject({ diskTotalBytes: size, diskLimitBytes: 1_000, diskCountedBytes: 700 });
    const headers = { 'x-api-key': limited.keys.default };
    const metrics = await limited.ask('GET', `/sandboxes/${id.slice(4)}/metrics`, { headers });
    expect(metrics.json()).toMatchObject([{ diskTotal: size }]);
    await limited.dispose();
  });

  it('are an error with the state when it is paused, and do not wake it', async () => {
    const id = await server.create();
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    const answer = await drives(id);
    expect([answer.statusCode, errorIn(answer)]).toMatchObject([
      409,
      { code: 'conflict', message: 'The sandbox is paused.', sandboxId: id },
    ]);
    expect(await stateOf(id)).toBe('paused');
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
    expect((await drives(id)).statusCode).toBe(410);
  });
});
