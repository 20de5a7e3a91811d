import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

describe('the nodes of a server that is alone', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await testServer();
  });
  afterAll(() => server.dispose());

  it('are none, and what an operator asks of one is refused', async () => {
    const listed = await server.ask('GET', '/v1/nodes');
    expect(listed.json()).toEqual({ items: [], nextCursor: null });
    for (const [method, path] of [
      ['GET', '/v1/nodes/a'],
      ['POST', '/v1/nodes/a/cordon'],
      ['POST', '/v1/nodes/a/uncordon'],
      ['POST', '/v1/nodes/a/drain'],
      ['POST', '/v1/nodes/a/forget'],
    ] as const) {
      const answer = await server.ask(method, path);
      expect(errorIn(answer).code, path).toBe('capability_unsupported');
    }
    const created = await server.ask('POST', '/v1/sandboxes', { body: {} });
    expect(created.json().node).toBe('local');
  });
});
