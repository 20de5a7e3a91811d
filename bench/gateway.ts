/**
 * What the gateway costs: the same app in the same sandbox, asked directly, through the gateway, and through nginx in
 * the gateway's place, one after the other in one run. Then how long a visitor waits for a sandbox that sleeps,
 * beside the bare resume.
 *
 *   npm run bench:gateway
 *
 * nginx and wrk are used where they are installed (Debian: nginx-light, wrk); without wrk a client of our own asks.
 */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { bareSandboxId, type SandboxId } from '@torpor/protocol';
import { makeDataDir, startTorpor, type TorporProcess } from '../tests/crash/torpor-process.ts';
import { guestService } from '../tests/wake/guest-app.ts';
import { download, echo, small } from './gateway/load.ts';
import { startNginx } from './gateway/nginx.ts';
import { row } from './measure.ts';

const WAKES = 9;

export interface Way {
  readonly name: string;
  readonly port: number;
  /** The `Host` that leads to the app. */
  readonly host: string;
}

const dataDir = await makeDataDir();
const server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' });
const stops: (() => Promise<void>)[] = [() => server.end(), () => dataDir.remove()];
try {
  const { id } = await server.torpor.sandboxes.create({ services: [guestService()], idleSeconds: 86_400 });
  const gateway = {
    name: 'gateway',
    port: Number(new URL(server.url).port),
    host: `3000-${bareSandboxId(id)}.sbx.localhost`,
  };
  const behind = await server.torpor.sandboxes.fetch(id, 3000, '/port/');
  const direct = { name: 'direct', port: Number(await behind.text()), host: '127.0.0.1' };
  const nginx = await startNginx(direct.port);
  if (nginx === undefined) console.log('nginx is not installed, so it is left out.');
  else stops.unshift(nginx.stop);
  const ways = [direct, gateway, ...(nginx === undefined ? [] : [nginx.way])];

  await table('small answers, 1 connection', ['req/s', 'p50 ms', 'p99 ms'], ways, (way) => small(way, 1));
  await table('small answers, 32 connections', ['req/s', 'p50 ms', 'p99 ms'], ways, (way) => small(way, 32));
  await table('a download of 100 MB', ['MB/s', 'first byte ms'], ways, download);
  await table('WebSocket echo, 1 connection', ['msg/s', 'p50 ms', 'p99 ms'], ways, echo);
  await wakes(server, id, gateway);
} finally {
  for (const stop of stops) await stop();
}

async function table(
  title: string,
  columns: string[],
  ways: readonly Way[],
  measure: (way: Way) => Promise<number[]>,
): Promise<void> {
  console.log(`\n${row([title, ...columns])}`);
  // Twice, and the second counts: the first is for caches and compilers to get warm.
  for (const way of ways) await measure(way);
  for (const way of ways) console.log(row([way.name, ...(await measure(way))]));
}

/** In turns, so that whatever else the machine does hits both alike. */
async function wakes({ torpor }: TorporProcess, id: SandboxId, gateway: Way): Promise<void> {
  const times = { 'bare resume': [] as number[], 'wake by a visit': [] as number[] };
  for (let i = 0; i < WAKES; i++) {
    await torpor.sandboxes.pause(id);
    let began = performance.now();
    await torpor.sandboxes.resume(id);
    times['bare resume'].push(performance.now() - began);
    await torpor.sandboxes.pause(id);
    await delay(50);
    began = performance.now();
    await firstByte(gateway);
    times['wake by a visit'].push(performance.now() - began);
  }
  console.log(`\n${row(['a sandbox that sleeps', 'p50 ms', '× resume'])}`);
  const median = (of: number[]) => of.toSorted((a, b) => a - b)[Math.floor(of.length / 2)] ?? 0;
  const unit = median(times['bare resume']);
  for (const [name, of] of Object.entries(times)) console.log(row([name, median(of), median(of) / unit]));
}

/** From the first byte sent to the first byte received. */
function firstByte({ port, host }: Way): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.once('error', reject);
    socket.once('data', () => {
      socket.destroy();
      resolve();
    });
    socket.write(`GET /x/y HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  });
}
