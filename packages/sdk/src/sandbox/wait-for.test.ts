import type { EventView, SandboxState } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer } from '../../testing/api-server.ts';
import { recordedPace } from '../../testing/recorded-pace.ts';
import { eventView, SANDBOX_ID, sandboxView } from '../../testing/views.ts';
import { Torpor } from '../client.ts';
import { Sandbox } from './sandbox.ts';

let server: ApiServer;
let sandbox: Sandbox;
/** The ledger of the sandbox so far, and the events that follow once a client listens. */
let ledger: EventView[];
let news: EventView[];
beforeEach(async () => {
  server = await apiServer();
  server.answer('GET /v1/sandboxes/*', () => ({
    json: sandboxView({ state: ledger.at(-1)?.state ?? 'creating' }),
  }));
  server.answer('GET /v1/sandboxes/*/events', ({ headers, query }) => {
    if (headers.accept !== 'text/event-stream') {
      const from = Number(query.get('cursor') ?? 0);
      const items = ledger.filter(({ seq }) => seq > from).slice(0, 2);
      const last = items.at(-1)?.seq ?? from;
      return { json: { items, nextCursor: last < (ledger.at(-1)?.seq ?? 0) ? String(last) : null } };
    }
    ledger = [...ledger, ...news];
    const after = Number(headers['last-event-id']);
    const frames = ledger
      .filter(({ seq }) => seq > after)
      .map((event) => `id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`);
    return { raw: (response) => response.write(`: connected\n\n${frames.join('')}`) };
  });
  ledger = states('running', 'paused', 'running');
  news = [];
  const torpor = new Torpor({ url: server.url, env: {}, pace: recordedPace() });
  sandbox = await Sandbox.connect(SANDBOX_ID, { torpor });
  server.requests.length = 0;
});
afterEach(() => server.close());

function states(...all: SandboxState[]): EventView[] {
  return all.map((state, index) => eventView(index + 1, { state }));
}

const then = (...all: SandboxState[]): EventView[] =>
  all.map((state, index) => eventView(ledger.length + index + 1, { state }));

describe('waiting for a state', () => {
  it('resolves at once when the sandbox is in it', async () => {
    expect(await sandbox.waitFor('running')).toMatchObject({ state: 'running' });
    expect(server.requests).toHaveLength(1);
  });

  it('resolves when the sandbox reaches it, and not because of earlier events', async () => {
    news = then('pausing', 'paused');
    expect(await sandbox.waitFor('paused')).toMatchObject({ state: 'paused' });
    expect(sandbox.state).toBe('paused');
    const followed = server.requests.find(({ headers }) => headers.accept === 'text/event-stream');
    expect(followed?.headers['last-event-id']).toBe('3');
  });

  it('does not miss a state that lasts only a moment', async () => {
    news = then('pausing', 'paused', 'resuming', 'running');
    expect(await sandbox.waitFor('paused')).toMatchObject({ state: 'running' });
  });

  it('accepts several states', async () => {
    news = then('pausing', 'paused');
    expect(await sandbox.waitFor(['killed', 'paused'])).toMatchObject({ state: 'paused' });
  });

  it.each([
    ['killed', 'killed'],
    ['lost', 'lost'],
    ['failed', 'conflict'],
  ] as const)('is given up when the sandbox is %s', async (state, code) => {
    news = then('running', state);
    await expect(sandbox.waitFor('paused')).rejects.toMatchObject({ code, sandboxId: SANDBOX_ID });
    await expect(sandbox.waitFor('paused'), 'from the beginning').rejects.toMatchObject({ code });
    expect(await sandbox.waitFor(state)).toMatchObject({ state });
  });
});
