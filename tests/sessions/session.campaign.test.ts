import { SESSION_POINTS } from '@torpor/sessions';
import { describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtimes/testing/gvisor-world.ts';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';
import { LINE_PROGRAM } from './line-program.ts';

const noGvisor = await whyNoGvisor();
const runtimes = noGvisor === null ? (['process', 'gvisor'] as const) : (['process'] as const);
const program = { command: LINE_PROGRAM, mode: 'service' } as const;

/** `npm run test:sessions`: a real program, asleep between messages, and a server that dies at every place. */
describe.each(runtimes)('a session in %s', (runtime) => {
  it('sleeps between messages and goes on where it was', async () => {
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

  it.each(SESSION_POINTS)('loses and doubles nothing when the server is killed at %s', async (point) => {
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
