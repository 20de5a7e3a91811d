import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer } from '../testing/api-server.ts';
import { recordedPace } from '../testing/recorded-pace.ts';
import { SANDBOX_ID } from '../testing/views.ts';
import { Torpor } from './client.ts';
import type { ExecEvent } from './exec.ts';

const ROUTE = 'POST /v1/sandboxes/*/exec';

let server: ApiServer;
let torpor: Torpor;
beforeEach(async () => {
  server = await apiServer();
  torpor = new Torpor({ url: server.url, apiKey: 'k', env: {}, pace: recordedPace() });
});
afterEach(() => server.close());

function streams(...frames: [name: string, data: unknown][]): void {
  const text = frames.map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join('');
  server.answer(ROUTE, { headers: { 'content-type': 'text/event-stream' }, text });
}

async function readAll(): Promise<ExecEvent[]> {
  const events: ExecEvent[] = [];
  for await (const event of torpor.sandboxes.execStream(SANDBOX_ID, 'make')) events.push(event);
  return events;
}

describe('exec', () => {
  it('returns one reply', async () => {
    const reply = {
      exitCode: 3,
      signal: null,
      stdout: 'out',
      stderr: 'err',
      truncated: false,
      durationMs: 5,
      autoResumed: true,
    };
    server.answer(ROUTE, { json: reply });
    expect(await torpor.sandboxes.exec(SANDBOX_ID, { command: 'make', cwd: '/app' })).toEqual(reply);
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({ command: 'make', cwd: '/app' });
  });

  it('is never repeated, whatever happens to the response (R55)', async () => {
    server.answer(ROUTE, { status: 503 });
    await expect(torpor.sandboxes.exec(SANDBOX_ID, 'make')).rejects.toThrow();
    server.answer(ROUTE, { raw: (response) => response.destroy() });
    await expect(torpor.sandboxes.exec(SANDBOX_ID, 'make')).rejects.toThrow();
    await expect(readAll()).rejects.toThrow();
    expect(server.requests).toHaveLength(3);
  });

  it('streams the output, and ends with the command', async () => {
    const end = { exitCode: 0, signal: null, durationMs: 9 };
    streams(['start', { pid: 7, autoResumed: false }], ['stdout', { data: 'a' }], ['news', {}], ['end', end]);
    expect(await readAll()).toEqual([
      { type: 'start', pid: 7, autoResumed: false },
      { type: 'stdout', data: 'a' },
      { type: 'end', ...end },
    ]);
    expect(server.requests[0]?.headers.accept).toBe('text/event-stream');
  });

  it('throws the error event of a stream', async () => {
    streams(
      ['start', { pid: 7, autoResumed: false }],
      ['error', { code: 'timeout', message: 'Too long.', retryable: true, hint: 'h' }],
    );
    await expect(readAll()).rejects.toMatchObject({ code: 'timeout', message: 'Too long.' });
  });

  it('fails when the stream ends before the command', async () => {
    streams(['start', { pid: 7, autoResumed: false }], ['stdout', { data: 'a' }]);
    await expect(readAll()).rejects.toThrow('ended before the command did');
  });
});
