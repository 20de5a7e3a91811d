import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  // A busy machine may take long to start an agent.
  server = await testServer({ engineSettings: { callMs: 20_000, operationMs: 60_000 } });
});
afterAll(() => server.dispose());

const stateOf = async (id: string) =>
  (await server.ask('GET', `/v1/sandboxes/${id}`)).json<{ state: string; generation: number }>();

describe('looking at a sandbox', () => {
  it('reads files and usage while it runs', async () => {
    const id = await server.create();
    const read = await server.ask('GET', `/v1/sandboxes/${id}/files?path=~&wake=false`);
    expect(read.json()).toMatchObject({ entries: expect.any(Array) });
    const metrics = await server.ask('GET', `/v1/sandboxes/${id}/metrics`);
    expect(metrics.json()).toMatchObject({ memoryUsedBytes: expect.any(Number), at: expect.any(Number) });
  });

  it('does not wake it: with wake=false a paused sandbox is a conflict', async () => {
    const id = await server.create();
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    for (const path of ['files?path=~&wake=false', 'metrics']) {
      const answer = await server.ask('GET', `/v1/sandboxes/${id}/${path}`);
      expect([path, errorIn(answer).code]).toEqual([path, 'conflict']);
    }
    expect(await stateOf(id)).toMatchObject({ state: 'paused', generation: 1 });
    const woken = await server.ask('GET', `/v1/sandboxes/${id}/files?path=~`);
    expect(woken.json()).toMatchObject({ entries: expect.any(Array) });
    expect(await stateOf(id)).toMatchObject({ state: 'running', generation: 2 });
  });
});
