/** Chooses a free port of the host for a service. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { TorporError } from '@torpor/protocol';

/**
 * Below the ephemeral ports of Linux: an outgoing connection could take one of those before the service listens, or
 * while the service restarts.
 */
const FIRST = 20_000;
const COUNT = 12_000;
const TRIES = 100;

export async function chooseFreePort(
  taken: ReadonlySet<number>,
  random: (below: number) => number = randomInt,
): Promise<number> {
  for (let tries = 0; tries < TRIES; tries++) {
    const port = FIRST + random(COUNT);
    if (!taken.has(port) && (await isFree(port))) return port;
  }
  throw new TorporError('capacity', 'No port is free for a service of the sandbox.');
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    server.listen({ port, host: '0.0.0.0', exclusive: true });
    await once(server, 'listening');
    return true;
  } catch {
    return false;
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}
