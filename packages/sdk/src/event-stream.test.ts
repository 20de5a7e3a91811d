import type { ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer, errorReply } from '../testing/api-server.ts';
import { type RecordedPace, recordedPace } from '../testing/recorded-pace.ts';
import { eventView, SANDBOX_ID } from '../testing/views.ts';
import { Torpor } from './client.ts';

const ROUTE = 'GET /v1/sandboxes/*/events';
const LAST = 7;

let server: ApiServer;
let pace: RecordedPace;
let torpor: Torpor;
beforeEach(async () => {
  server = await apiServer();
  pace = recordedPace();
  torpor = new Torpor({ url: server.url, apiKey: 'k', env: {}, pace });
});
afterEach(() => server.close());

function opened(then: (response: ServerResponse) => void) {
  return {
    raw: (response: ServerResponse) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      then(response);
    },
  };
}

function frame(number: number): string {
  return `id: ${number}\ndata: ${JSON.stringify(eventView(number))}\n\n`;
}

async function read(after?: number): Promise<number[]> {
  const seen: number[] = [];
  for await (const { seq } of torpor.sandboxes.events(SANDBOX_ID, { after })) {
    seen.push(seq);
    if (seq === LAST) return seen;
  }
  return seen;
}

/** The n-th connection sends the n-th line, and then ends as given. */
function script(...lines: readonly ((response: ServerResponse, after: number) => void)[]): void {
  let next = 0;
  server.answer(ROUTE, ({ headers }) => {
    const line = lines[Math.min(next++, lines.length - 1)];
    return opened((response) => line?.(response, Number(headers['last-event-id'])));
  });
}

const rest = (response: ServerResponse, after: number) => {
  for (let n = after + 1; n <= LAST; n++) response.write(frame(n));
};

describe('following events', () => {
  it('resumes after the last event that arrived, however the connection broke', async () => {
    script(
      (response) => response.end(frame(1) + frame(2)),
      (response) => response.write(frame(3) + frame(4).slice(0, 20), () => response.destroy()),
      (response) => response.end(': only a sign of life\n\n'),
      // The reader must not see an event twice when the server repeats it.
      (response) => response.write(frame(2) + frame(3) + frame(4)),
    );
    const seen: number[] = [];
    const asked: unknown[] = [];
    for await (const { seq } of torpor.sandboxes.events(SANDBOX_ID)) {
      seen.push(seq);
      asked.push(server.requests.at(-1)?.headers['last-event-id']);
      if (seq === 4) break;
    }
    expect(seen).toEqual([1, 2, 3, 4]);
    expect(asked).toEqual(['0', '0', '2', '3']);
    expect(server.requests).toHaveLength(4);
  });

  it('reconnects when a connection is silent for too long', async () => {
    torpor = new Torpor({ url: server.url, apiKey: 'k', env: {}, pace, silenceMs: 50 });
    script((response) => response.write(frame(1)), rest);
    expect(await read()).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(server.requests).toHaveLength(2);
  });

  it('does not reconnect because of a slow reader', async () => {
    torpor = new Torpor({ url: server.url, apiKey: 'k', env: {}, pace, silenceMs: 50 });
    script(rest);
    for await (const { seq } of torpor.sandboxes.events(SANDBOX_ID)) {
      await delay(20);
      if (seq === LAST) break;
    }
    expect(server.requests).toHaveLength(1);
  });

  it('begins after the given event', async () => {
    script(rest);
    expect(await read(4)).toEqual([5, 6, 7]);
  });

  it('waits for a server that restarts', async () => {
    let tries = 0;
    server.answer(ROUTE, ({ headers }) => {
      tries++;
      if (tries === 1) return opened((response) => response.end(frame(1)));
      if (tries < 4) return { status: 503 };
      return opened((response) => rest(response, Number(headers['last-event-id'])));
    });
    expect(await read()).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  it('fails when connection after connection brings no byte', async () => {
    script((response) => response.end());
    await expect(read()).rejects.toThrow('ends the stream again and again');
    expect(server.requests).toHaveLength(6);
  });

  it('fails at once after a final error response', async () => {
    server.answer(ROUTE, errorReply(404, 'not_found', 'No such sandbox.'));
    await expect(read()).rejects.toMatchObject({ code: 'not_found' });
    expect(server.requests).toHaveLength(1);
  });

  it('fails at once after an error event', async () => {
    const error = {
      code: 'unauthenticated',
      message: 'The API key is not valid any more.',
      retryable: false,
    };
    script((response) => response.end(`${frame(1)}event: error\ndata: ${JSON.stringify(error)}\n\n`));
    await expect(read()).rejects.toMatchObject({ code: 'unauthenticated', message: error.message });
    expect(server.requests).toHaveLength(1);
  });

  it("rejects with the signal's reason", async () => {
    const stop = new AbortController();
    server.answer(
      'GET /v1/events',
      opened((response) => response.write(frame(1))),
    );
    const reading = (async () => {
      for await (const _ of torpor.events({ signal: stop.signal })) stop.abort(new Error('enough'));
    })();
    await expect(reading).rejects.toThrow('enough');
  });
});
