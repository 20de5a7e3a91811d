import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { ask } from '@torpor/gateway/testing';
import { bareSandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { guestService } from '../wake/guest-app.ts';

/** Many at once in front of one door. */

let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
let server: TorporProcess;
beforeAll(async () => {
  dataDir = await makeDataDir();
  server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' });
}, 60_000);
afterAll(async () => {
  await server.end();
  await dataDir.remove();
});

async function residentMb(): Promise<number> {
  const status = await readFile(`/proc/${server.pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024);
}

async function sleeping() {
  const { sandboxes } = server.torpor;
  const { id } = await sandboxes.create({ services: [guestService()] });
  await sandboxes.pause(id);
  const port = Number(new URL(server.url).port);
  return { id, port, host: `3000-${bareSandboxId(id)}.sbx.localhost` };
}

it('200 first requests at once to a sandbox that sleeps: one resume, 200 answers', {
  timeout: 120_000,
}, async () => {
  const { id, port, host } = await sleeping();
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, i) =>
      ask(port, host, { path: `/run/${i}`, method: i % 2 === 0 ? 'GET' : 'POST' }),
    ),
  );
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
  expect((await server.torpor.sandboxes.get(id)).generation).toBe(2);
  const { stdout } = await server.torpor.sandboxes.exec(id, 'sort runs | uniq | wc -l; wc -l < runs');
  expect(stdout.trim().split(/\s+/)).toEqual(['200', '200']);
});

it.skipIf(process.platform !== 'linux')(
  '1,000 idle connections and 200 held requests take a bounded amount of memory',
  { timeout: 120_000 },
  async () => {
    const { port, host } = await sleeping();
    await ask(port, host, { path: '/x/warm' });
    const before = await residentMb();
    const idle: Socket[] = [];
    for (let i = 0; i < 1_000; i++) {
      const socket = connect({ port, host: '127.0.0.1' });
      await new Promise<void>((resolve) => {
        socket.once('data', () => resolve());
        socket.write(`GET /x/${i} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      });
      idle.push(socket);
    }
    const withIdle = await residentMb();
    const other = await sleeping();
    // Each has a body that nobody reads before the sandbox is awake.
    const held = Array.from({ length: 200 }, (_, i) =>
      ask(other.port, other.host, { method: 'POST', path: `/x/${i}`, body: Buffer.alloc(256 * 1024, 'x') }),
    );
    await delay(200);
    const withHeld = await residentMb();
    const answers = await Promise.all(held);
    for (const socket of idle) socket.destroy();
    console.log(JSON.stringify({ before, withIdle, withHeld }));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    expect(withIdle - before).toBeLessThan(100);
    expect(withHeld - withIdle).toBeLessThan(150);
  },
);
