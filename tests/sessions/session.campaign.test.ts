import { SESSION_POINTS } from '@torpor/sessions';
import { describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';
import { e2bServer } from '../e2b/e2b-server.ts';
import { breakableWay } from '../sdk/breakable-way.ts';
import { LINE_PROGRAM } from './line-program.ts';

const noGvisor = await whyNoGvisor();
const runtimes = noGvisor === null ? (['process', 'gvisor'] as const) : (['process'] as const);
const program = { command: LINE_PROGRAM, mode: 'service' } as const;

/** `npm run test:sessions`: a real program, paused between messages, and a server that is killed at every fault point. */
describe.each(runtimes)('a session in %s', (runtime) => {
  it('is paused between messages and continues where it was', async () => {
    const dataDir = await makeDataDir();
    let server = await startTorpor(dataDir.path, {}, runtime);
    try {
      const session = await server.torpor.sessions.getOrSpawn('sleeper', { program });
      const { sandboxId } = session.view;
      for (let message = 1; message <= 10; message++) {
        const { output } = await session.send(`message ${message}`);
        const remembered = runtime === 'gvisor' ? message : 1;
        expect(output).toBe(`remembered ${remembered}, written ${message}\n`);
        await server.torpor.sandboxes.pause(sandboxId as never);
      }
      await server.kill('SIGTERM');
      server = await startTorpor(dataDir.path, {}, runtime);
      const again = await server.torpor.sessions.getOrSpawn('sleeper', { program });
      expect(again.view).toMatchObject({ sandboxId, agentThreadId: 'thread-of-sleeper' });
      expect((await again.send('after a restart')).output).toMatch(/written 11\n$/);
    } finally {
      await server.end();
      await dataDir.remove();
    }
  });

  it('has one sandbox for twenty concurrent requests, paused or not, and answers all of them in order', async () => {
    const dataDir = await makeDataDir();
    const server = await startTorpor(dataDir.path, {}, runtime);
    try {
      const { sessions, sandboxes } = server.torpor;
      const askAll = () =>
        Promise.all(Array.from({ length: 20 }, () => sessions.getOrSpawn('crowded', { program })));
      const [first, ...others] = await askAll();
      if (first === undefined) throw new Error('There is no session.');
      const { sandboxId } = first.view;
      expect(new Set(others.map(({ view }) => view.sandboxId))).toEqual(new Set([sandboxId]));
      await sandboxes.pause(sandboxId as never);
      expect(new Set((await askAll()).map(({ view }) => view.sandboxId))).toEqual(new Set([sandboxId]));
      const turns = await Promise.all(others.map((session, at) => session.send(`message ${at}`)));
      const written = turns.map(({ output }) => Number(/written (\d+)/.exec(output)?.[1]));
      expect(written.sort((a, b) => a - b)).toEqual(turns.map((_, at) => at + 1));
      const made = [];
      for await (const { id } of sandboxes.list()) made.push(id);
      expect(made).toEqual([sandboxId]);
    } finally {
      await server.end();
      await dataDir.remove();
    }
  });

  it('delivers its message once when an unreachable provider is back, and clears the error', async () => {
    const provider = await e2bServer('http', runtime);
    const way = await breakableWay(provider.server.url);
    const dataDir = await makeDataDir();
    const env = { ...provider.env, E2B_API_URL: way.url, E2B_SANDBOX_URL: way.url };
    const server = await startTorpor(dataDir.path, env, 'e2b');
    try {
      const session = await server.torpor.sessions.getOrSpawn('far', { program });
      const { sandboxId } = session.view;
      expect(await session.send('one')).toMatchObject({ output: 'remembered 1, written 1\n', error: null });
      await server.torpor.sandboxes.pause(sandboxId as never);
      way.leadTo('http://127.0.0.1:1');
      way.cut();
      const { id } = await session.post('two');
      const turn = () => session.turn(id);
      await expect.poll(async () => (await turn()).error, { timeout: 120_000 }).not.toBeNull();
      expect(await turn()).toMatchObject({ state: 'waiting', error: { retryable: true } });
      expect((await server.torpor.sessions.get(session.id)).view.error).not.toBeNull();
      way.leadTo(provider.server.url);
      await expect.poll(async () => (await turn()).state, { timeout: 120_000 }).toBe('done');
      const remembered = runtime === 'gvisor' ? 2 : 1;
      expect((await turn()).output).toBe(`remembered ${remembered}, written 2\n`);
      const { view } = await server.torpor.sessions.get(session.id);
      expect(view).toMatchObject({ sandboxId, error: null, change: { did: 'resumed' } });
    } finally {
      await server.end();
      await dataDir.remove();
      await way.close();
      await provider.dispose();
    }
  });

  it.each(SESSION_POINTS)('loses and repeats nothing when the server is killed at %s', async (point) => {
    const dataDir = await makeDataDir();
    let server = await startTorpor(
      dataDir.path,
      { TORPOR_FAULTS: '1', TORPOR_FAULT: `session.${point}` },
      runtime,
    );
    try {
      const dying = await server.torpor.sessions.getOrSpawn('dying', { program, spawn: false });
      await dying.post('hello', { idempotencyKey: 'one' }).catch(() => {});
      expect(await server.ended).toBe('SIGKILL');
      server = await startTorpor(dataDir.path, {}, runtime);
      const session = await server.torpor.sessions.getOrSpawn('dying', { program });
      const turn = await session.send('hello', { idempotencyKey: 'one' });
      expect(turn).toMatchObject({ state: 'done', output: 'remembered 1, written 1\n' });
      const sandboxes = [];
      for await (const { id } of server.torpor.sandboxes.list()) sandboxes.push(id);
      expect(sandboxes).toEqual([session.view.sandboxId]);
    } finally {
      await server.end();
      await dataDir.remove();
    }
  });
});
