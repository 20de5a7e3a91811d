import { once } from 'node:events';
import { statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listen } from './listen.ts';

describe('the socket of an agent', () => {
  let directory: string;
  const server = createServer();
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-listen-'));
  });
  afterEach(async () => {
    server.close();
    await rm(directory, { recursive: true });
  });

  it('is accessible only to its owner from the moment it exists', async () => {
    const path = join(directory, 'agent.sock');
    let mode = 0;
    server.once('listening', () => {
      mode = statSync(path).mode & 0o777;
    });
    expect(await listen(server, { path })).toEqual({ path });
    expect(mode.toString(8)).toBe('600');
  });

  it('does not change the mode of files created later', async () => {
    const before = process.umask();
    await listen(server, { path: join(directory, 'agent.sock') });
    expect(process.umask()).toBe(before);
  });

  it('replaces the socket that an ended agent has left', async () => {
    const path = join(directory, 'agent.sock');
    const first = createServer().listen({ path });
    await once(first, 'listening');
    expect(await listen(server, { path })).toEqual({ path });
    first.close();
  });

  it('reports the port that the system chose', async () => {
    const where = await listen(server, { host: '127.0.0.1', port: 0 });
    expect(where).toMatchObject({ host: '127.0.0.1', port: expect.any(Number) });
    expect('port' in where && where.port).toBeGreaterThan(0);
  });
});
