import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { linuxProcesses, parseListeners, parseStat } from './linux-processes.ts';
import { parseLine, portableProcesses } from './portable-processes.ts';

describe('parsing /proc', () => {
  it('finds the end of a program name that looks like further fields', () => {
    const line = '42 (a) Z 1 (b) T 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 12345 0';
    expect(parseStat(line)).toEqual({
      pid: 42,
      state: 'stopped',
      parent: 7,
      group: 8,
      session: 9,
      threads: 3,
      startedAt: '12345',
    });
    expect(parseStat('')).toBeUndefined();
  });

  it('finds listening sockets on IPv4, IPv6 and both', () => {
    const table = [
      '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode',
      '   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1',
      '   1: 0100007F:0BB8 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 222 1',
      '   2: 00000000000000000000000001000000:0BB9 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 333 1',
      '   3: 00000000000000000000000000000000:0BBA 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 444 1',
    ].join('\n');
    expect(parseListeners(table)).toEqual([
      { address: '127.0.0.1', port: 3000, socket: 'socket:[111]', user: 1000 },
      { address: '::1', port: 3001, socket: 'socket:[333]', user: 0 },
      { address: '::', port: 3002, socket: 'socket:[444]', user: 0 },
    ]);
  });
});

describe('parsing ps', () => {
  it('reads a line, and ignores one that is malformed', () => {
    expect(parseLine('  12   1  12 T+  Mon Nov 10 10:00:00 2025 ')).toEqual({
      pid: 12,
      parent: 1,
      session: 12,
      group: 12,
      startedAt: 'Mon Nov 10 10:00:00 2025',
      state: 'stopped',
    });
    expect(parseLine('nonsense')).toBeUndefined();
  });
});

describe.skipIf(process.platform !== 'linux').each([
  { name: '/proc', host: linuxProcesses },
  { name: 'ps and lsof', host: portableProcesses },
])('host processes read from $name', ({ host }) => {
  it('identify a process by its start time, and show it running, stopped and gone', async () => {
    const child = spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' });
    const pid = child.pid as number;
    try {
      const first = await host.read(pid);
      expect(first).toMatchObject({ pid, parent: process.pid, session: pid, state: 'running' });
      expect((await host.all()).find((one) => one.pid === pid)?.startedAt).toBe(first?.startedAt);
      process.kill(pid, 'SIGSTOP');
      await expect.poll(async () => (await host.read(pid))?.state).toBe('stopped');
    } finally {
      process.kill(pid, 'SIGKILL');
      await once(child, 'close');
    }
    expect(await host.read(pid)).toBeUndefined();
  });

  it('show which process holds a listening socket', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    try {
      const [listener] = await host.listeners(port);
      expect(listener).toMatchObject({ address: '127.0.0.1', port });
      const self = await host.read(process.pid);
      const parent = await host.read(process.ppid);
      const sockets = new Set([listener?.socket ?? '']);
      expect(self && (await host.heldSockets(self, sockets))).toEqual([listener?.socket]);
      expect(parent && (await host.heldSockets(parent, sockets))).toEqual([]);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
    expect(await host.listeners(port)).toEqual([]);
  });
});
