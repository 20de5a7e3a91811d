import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessView, SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
afterAll(() => server.dispose());

const processes = async (id: SandboxId): Promise<ProcessView[]> =>
  (await server.ask('GET', `/v1/sandboxes/${id}/processes`)).json().items;
const start = async (id: SandboxId, command: string): Promise<ProcessView> =>
  (await server.ask('POST', `/v1/sandboxes/${id}/exec`, { body: { command, background: true } })).json()
    .process;
const verb = (id: SandboxId, name: string, body = {}) =>
  server.ask('POST', `/v1/sandboxes/${id}/${name}`, { body });

describe('processes', () => {
  beforeAll(async () => {
    // The runtime claims to keep memory, but its agents and their processes end with each pause.
    // The engine learns of ended jobs only when it compares them.
    server = await testServer({ engineSettings: { jobWatchDelayMs: 3_600_000 } });
  });

  it('are running, and commands in progress are listed with them', async () => {
    const id = await server.create();
    const { id: name, pid } = await start(id, 'sleep 1000');
    const command = 'until [ -e enough ]; do sleep 0.05; done';
    const waiting = verb(id, 'exec', { command });
    let list: ProcessView[] = [];
    while (list.length < 2) list = await processes(id);
    expect(list).toMatchObject([
      { id: name, kind: 'background', pid, command: 'sleep 1000', status: 'running', reason: null },
      { id: null, kind: 'process', command, status: 'running' },
    ]);
    await verb(id, 'exec', { command: 'touch enough' });
    await waiting;
  });

  it('that ended have a reason', async () => {
    const id = await server.create();
    const { pid } = await start(id, 'exit 3');
    let [view] = await processes(id);
    while (view?.status === 'running') {
      await delay(10);
      [view] = await processes(id);
    }
    expect(view).toMatchObject({ pid, status: 'exited', reason: 'it ended with exit code 3' });
    expect(await processes(id)).toEqual([view]);
  });

  it('are suspended while the sandbox is paused, and listing them does not wake it (R98)', async () => {
    const id = await server.create({ services: [{ name: 'web', command: 'serve' }] });
    await start(id, 'sleep 1000');
    await verb(id, 'pause');
    expect((await processes(id)).map(({ kind, status, reason }) => [kind, status, reason])).toEqual([
      ['service', 'suspended', null],
      ['background', 'suspended', null],
    ]);
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json().state).toBe('paused');
  });

  it('are lost with a reason when only files were kept, now and after the next start (R98)', async () => {
    const id = await server.create();
    await start(id, 'sleep 1000');
    await verb(id, 'pause', { mode: 'files' });
    expect(await processes(id)).toMatchObject([
      { status: 'lost', reason: expect.stringMatching(/only its files were kept/) },
    ]);
    await verb(id, 'resume');
    const [lost] = await processes(id);
    expect(lost).toMatchObject({ status: 'lost', reason: expect.stringMatching(/only its files were kept/) });
    await verb(id, 'pause');
    await verb(id, 'resume');
    expect(await processes(id)).toEqual([lost]);
  });

  it('that should run but do not are lost with a reason', async () => {
    const id = await server.create({ services: [{ name: 'web', command: 'serve', port: 3000 }] });
    expect(await processes(id)).toMatchObject([
      {
        id: 'web',
        kind: 'service',
        status: 'lost',
        reason: expect.stringMatching(/does not run in the sandbox/),
      },
    ]);
  });

  it('of a killed sandbox are lost (R98)', async () => {
    const id = await server.create({ services: [{ name: 'web', command: 'serve' }] });
    await start(id, 'sleep 1000');
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
    expect(await processes(id)).toMatchObject([
      { kind: 'service', status: 'lost', reason: 'The sandbox was killed.' },
      { kind: 'background', status: 'lost', reason: 'The sandbox was killed.' },
    ]);
  });

  it('are an error when the agent does not answer', async () => {
    const id = await server.create();
    await start(id, 'sleep 1000');
    await server.runtime.killAgent({ sandboxId: id, generation: 1 });
    const response = await server.ask('GET', `/v1/sandboxes/${id}/processes`);
    expect([response.statusCode, errorIn(response).code]).toEqual([503, 'unreachable']);
  });
});
