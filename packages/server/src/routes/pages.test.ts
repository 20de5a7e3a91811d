import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type TestServer, testServer } from '../../testing/test-server.ts';

interface Page {
  readonly items: unknown[];
  readonly nextCursor: string | null;
}

let server: TestServer;
const names: Record<string, string> = {};

beforeAll(async () => {
  server = await testServer();
  const sandbox = await server.create();
  await server.create();
  names['{sandbox}'] = sandbox;
  for (const name of ['first', 'second'])
    await server.ask('POST', `/v1/sandboxes/${sandbox}/checkpoints`, { body: { name } });
  for (const name of ['first', 'second']) await server.ask('POST', '/v1/keys', { body: { name } });
  const open = (key: string) =>
    server.ask('POST', '/v1/sessions', { body: { key, program: { command: 'cat' }, spawn: false } });
  await open('other');
  const { session } = (await open('talk')).json<{ session: { id: string } }>();
  names['{session}'] = session.id;
  // The stream ends with the turn, so that nothing is added to the lists afterwards.
  for (const input of ['one', 'two']) {
    const headers = { accept: 'text/event-stream' };
    await server.ask('POST', `/v1/sessions/${session.id}/turns`, { body: { input }, headers });
  }
});
afterAll(() => server.dispose());

describe('a list in pages', () => {
  it.each([
    '/v1/sandboxes',
    '/v1/sandboxes/{sandbox}/checkpoints',
    '/v1/sandboxes/{sandbox}/events',
    '/v1/events',
    '/v1/operations',
    '/v1/keys',
    '/v1/sessions',
    '/v1/sessions/{session}/turns',
  ])('%s has a next page only when there are more items', async (path) => {
    const url = path.replace(/\{\w+\}/, (name) => names[name] ?? name);
    const page = async (limit: number) => (await server.ask('GET', `${url}?limit=${limit}`)).json<Page>();
    const count = (await page(100)).items.length;
    expect(count).toBeGreaterThan(1);
    expect(await page(count)).toMatchObject({ nextCursor: null });
    const part = await page(count - 1);
    expect(part.items).toHaveLength(count - 1);
    expect(part.nextCursor).not.toBeNull();
  });
});
