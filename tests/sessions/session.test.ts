import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { LINE_PROGRAM } from './line-program.ts';

const program = { command: LINE_PROGRAM, mode: 'service' } as const;

/** The most critical fault point; `npm run test:sessions` tests all of them. */
const DEATHS = ['session.delivered'];

describe('a session with a real program', () => {
  let data: Awaited<ReturnType<typeof makeDataDir>>;
  let server: TorporProcess;
  beforeAll(async () => {
    data = await makeDataDir();
    server = await startTorpor(data.path);
  }, 120_000);
  afterAll(async () => {
    await server.end();
    await data.remove();
  }, 120_000);

  it('restarts with its files when memory does not survive', { timeout: 120_000 }, async () => {
    const session = await server.torpor.sessions.getOrSpawn('sleeper', { program });
    const sandboxId = session.view.sandboxId;
    expect(await session.send('one')).toMatchObject({ state: 'done', output: 'remembered 1, written 1\n' });
    expect((await session.send('two')).output).toBe('remembered 2, written 2\n');
    await server.torpor.sandboxes.pause(sandboxId as never);
    expect(await session.send('three')).toMatchObject({ state: 'done', output: 'remembered 1, written 3\n' });
    const after = (await server.torpor.sessions.get(session.id)).view;
    expect(after).toMatchObject({
      sandboxId,
      agentThreadId: 'thread-of-sleeper',
      change: { did: 'resumed' },
    });
    await session.end();
  });

  it('reports since when files are lost, and passes the history on (R73, R74)', {
    timeout: 120_000,
  }, async () => {
    const { sessions, sandboxes } = server.torpor;
    const session = await sessions.getOrSpawn('older-files', { program });
    const sandboxId = session.view.sandboxId as SandboxId;
    await session.send('one');
    const { checkpoint } = await sandboxes.pause(sandboxId);
    await session.send('two');
    await sandboxes.kill(sandboxId);
    // The file has only the first turn. The third turn brings the history of the first two.
    expect(await session.send('three')).toMatchObject({ state: 'done', output: 'remembered 1, written 2\n' });
    const { view } = await sessions.get(session.id);
    expect(view.change).toMatchObject({
      from: checkpoint.id,
      lost: ['processes', 'files'],
      lostSince: checkpoint.sealedAt,
      threadKept: false,
    });
    const log = await sandboxes.files(view.sandboxId as SandboxId).readText('stdin.log');
    const delivered = JSON.parse(log.trim().split('\n').at(-1) ?? '{}') as { history?: { input: string }[] };
    expect(delivered.history?.map(({ input }) => input)).toEqual(['one', 'two']);
    const wakes = [];
    for await (const { did } of session.wakes({ limit: 2 })) wakes.push(did);
    expect(wakes).toEqual(['spawned', 'resumed', 'replaced']);
    await session.end();
  });

  it('loses no prompt and delivers none twice when the server is killed (R105, R107)', {
    timeout: 240_000,
  }, async () => {
    for (const [index, point] of DEATHS.entries()) {
      await server.kill('SIGTERM');
      server = await startTorpor(data.path, { TORPOR_FAULTS: '1', TORPOR_FAULT: point });
      const key = `killed-${index}`;
      const dying = await server.torpor.sessions.getOrSpawn(key, { program, spawn: false });
      await dying.post('hello', { idempotencyKey: key }).catch(() => {});
      expect(await server.ended, point).toBe('SIGKILL');

      server = await startTorpor(data.path);
      const session = await server.torpor.sessions.getOrSpawn(key, { program });
      // The turn was stored before the kill. The same idempotency key names the same turn.
      expect(await session.send('hello', { idempotencyKey: key }), point).toMatchObject({
        state: 'done',
        output: 'remembered 1, written 1\n',
      });
      const sandboxes = [];
      const filter = { metadata: { 'torpor.session': session.id } };
      for await (const { id } of server.torpor.sandboxes.list(filter)) sandboxes.push(id);
      expect(sandboxes, point).toEqual([session.view.sandboxId]);
      await session.end();
    }
  });
});
