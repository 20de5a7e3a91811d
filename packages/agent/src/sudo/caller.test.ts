import { spawn } from 'node:child_process';
import { pbkdf2 } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Accounts } from './accounts.ts';
import { parseSudo } from './arguments.ts';
import { serveCaller } from './caller.ts';
import { FrameReader, frame } from './frames.ts';

const ROOT = { name: 'root', uid: 0, gid: 0, home: '/root', shell: '/bin/sh' };

describe.skipIf(process.getuid?.() !== 0)('a call of sudo', () => {
  it('loses no output while the agent is busy after the start of the command', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-caller-'));
    const server = createServer();
    // Its input is /dev/null, which the agent opens and closes.
    const program = spawn('sleep', ['60'], { stdio: 'ignore' });
    try {
      await new Promise<void>((resolve) => server.listen(join(directory, 'socket'), resolve));
      const accepted = once(server, 'connection') as Promise<[Socket]>;
      const client = connect(join(directory, 'socket'));
      const [socket] = await accepted;
      const pipes = {
        // Called right before the command starts. Everything that needs a thread afterwards waits for some 100 ms.
        take: async () => {
          for (let job = 0; job < 8; job += 1) pbkdf2('x', 'y', 200_000, 64, 'sha512', () => {});
          return undefined;
        },
      };
      const accounts = new Accounts();
      const call = serveCaller(socket, ROOT, { accounts, pipes, env: process.env, sandboxId: () => 'x' });
      const asked = parseSudo(['head', '-c', '5000000', '/dev/zero']);
      const command = 'command' in asked ? asked.command : undefined;
      const request = { command, directory: '/', env: {}, pid: program.pid, terminal: null };
      client.write(frame('request', JSON.stringify(request)));
      expect(await receivedBytes(client)).toBe(5_000_000);
      await call;
    } finally {
      program.kill();
      server.close();
      await rm(directory, { recursive: true });
    }
  });
});

async function receivedBytes(client: Socket): Promise<number> {
  const frames = new FrameReader();
  let received = 0;
  for await (const piece of client) {
    for (const { kind, bytes } of frames.push(piece as Buffer))
      if (kind === 'stdout') received += bytes.length;
  }
  return received;
}
