import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

describe('an agent that refuses the server token', () => {
  let server: TestServer;
  let id: SandboxId;
  beforeAll(async () => {
    // The first request to the agent waits until the agent has started.
    server = await testServer({ engineSettings: { observeMs: 30_000 } });
    id = await server.create();
    const { runtime } = server;
    const agent = runtime.agent.bind(runtime);
    runtime.agent = async (instance) => ({ ...(await agent(instance)), token: 'another' });
  });
  afterAll(() => server.dispose());

  it.each([
    ['GET', 'files?path=.', undefined],
    ['GET', 'files?path=/etc/passwd', undefined],
    ['PUT', 'files?path=file', 'text'],
    ['GET', 'processes', undefined],
    ['GET', 'ports', undefined],
    ['POST', 'exec', { command: 'true' }],
  ] as const)("is answered as unreachable, not as the caller's fault: %s %s", async (method, path, body) => {
    const response = await server.ask(method, `/v1/sandboxes/${id}/${path}`, { body });
    expect([response.statusCode, errorIn(response)]).toMatchObject([
      503,
      { code: 'unreachable', sandboxId: id },
    ]);
    expect(response.body).not.toContain('x-access-token');
  });
});
