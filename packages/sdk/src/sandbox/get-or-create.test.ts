import type { CreateRequest, SandboxView } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer, errorReply } from '../../testing/api-server.ts';
import { recordedPace } from '../../testing/recorded-pace.ts';
import { eventView, sandboxView } from '../../testing/views.ts';
import { Torpor } from '../client.ts';
import { Sandbox } from './sandbox.ts';

let server: ApiServer;
let torpor: Torpor;
/** Every sandbox that was created; as on the server, a sandbox that has not ended keeps its name. */
let there: SandboxView[];
let creates: number;
beforeEach(async () => {
  there = [];
  creates = 0;
  server = await apiServer();
  server.answer('POST /v1/sandboxes', ({ body }) => {
    creates++;
    const request = JSON.parse(body) as CreateRequest;
    const taken = there.find(({ name, state }) => name === request.name && !ended(state));
    if (taken !== undefined) return errorReply(409, 'conflict', 'Taken.', { sandboxId: taken.id });
    const id = `sbx_${String(there.length).padStart(20, '0')}` as const;
    const made = sandboxView({ id, name: request.name ?? null, metadata: request.metadata ?? {} });
    there.push(made);
    return { status: 201, json: made };
  });
  server.answer('GET /v1/sandboxes/*', ({ path }) => {
    const found = there.find(({ id }) => path.endsWith(id));
    return found === undefined ? errorReply(404, 'not_found', 'Gone.') : { json: found };
  });
  torpor = new Torpor({ url: server.url, env: {}, pace: recordedPace() });
});
afterEach(() => server.close());

const ended = (state: SandboxView['state']) => ['killed', 'failed', 'lost'].includes(state);
const getOrCreate = (request = {}) => Sandbox.getOrCreate('web', request, { torpor });

function put(state: SandboxView['state'], then?: SandboxView['state']): void {
  there.push(sandboxView({ id: 'sbx_zzzzzzzzzzzzzzzzzzzz', name: 'web', state }));
  if (then === undefined) return;
  // Reaches the second state as soon as a client follows its events.
  server.answer('GET /v1/sandboxes/*/events', ({ headers }) => {
    if (headers.accept !== 'text/event-stream')
      return { json: { items: [eventView(1, { state })], nextCursor: null } };
    there = there.map((one) => ({ ...one, state: then }));
    const event = JSON.stringify(eventView(2, { state: then }));
    return { raw: (response) => response.write(`id: 2\ndata: ${event}\n\n`) };
  });
}

describe('getOrCreate', () => {
  it('creates a sandbox of that name, with the given options', async () => {
    const made = await getOrCreate({ metadata: { a: 'b' } });
    expect([made.name, made.metadata]).toEqual(['web', { a: 'b' }]);
  });

  it('returns the existing sandbox, whatever the options', async () => {
    const first = await getOrCreate();
    const second = await getOrCreate({ idleSeconds: 5 });
    expect(second.id).toBe(first.id);
    expect(there).toHaveLength(1);
  });

  it('returns the same sandbox to concurrent callers', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => getOrCreate()));
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(there).toHaveLength(1);
  });

  it('returns a paused sandbox without waking it', async () => {
    put('paused');
    expect((await getOrCreate()).state).toBe('paused');
    expect(server.requests.map(({ method }) => method)).toEqual(['POST', 'GET']);
  });

  it('waits for a sandbox that another caller is creating', async () => {
    put('creating', 'running');
    expect(await getOrCreate()).toMatchObject({ id: 'sbx_zzzzzzzzzzzzzzzzzzzz', state: 'running' });
  });

  it.each([
    ['creating', 'failed'],
    ['killing', 'killed'],
  ] as const)('makes a new one when the old one is %s and then %s', async (state, then) => {
    put(state, then);
    expect((await getOrCreate()).id).not.toBe('sbx_zzzzzzzzzzzzzzzzzzzz');
    expect(creates).toBe(2);
  });

  it('bounds its retries', async () => {
    server.answer('POST /v1/sandboxes', () => {
      creates++;
      return errorReply(409, 'conflict', 'Taken.', { sandboxId: 'sbx_nowhere' });
    });
    await expect(getOrCreate()).rejects.toMatchObject({ code: 'conflict' });
    expect(creates).toBe(10);
  });

  it('throws every other error unchanged', async () => {
    server.answer('POST /v1/sandboxes', errorReply(409, 'conflict', 'Something else.'));
    await expect(getOrCreate()).rejects.toThrow('Something else.');
  });
});
