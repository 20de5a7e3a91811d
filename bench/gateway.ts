/**
 * What the gateway costs: the same app in the same sandbox, asked directly, through the gateway, and through nginx in
 * the gateway's place, one after the other in one run. Then how long a visitor waits for a sandbox that sleeps,
 * beside the bare resume; and what a crowd takes of the server's memory.
 *
 *   npm run bench:gateway                in gVisor where there is one
 *   npm run bench:gateway -- quick       shorter, with fewer rounds
 *   npm run bench:gateway -- process     in the process runtime
 *
 * nginx and wrk are used where they are installed (Debian: nginx-light, wrk); without wrk a client of our own asks.
 */
import { loadavg } from 'node:os';
import { bareSandboxId } from '@torpor/protocol';
import { findRunsc } from '../packages/runtime-gvisor/src/runsc/find-runsc.ts';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';
import { crowdMemory } from '../tests/gateway/crowd.ts';
import { guestService } from '../tests/wake/guest-app.ts';
import { download, echo, smallRequests } from './gateway/load.ts';
import { startNginx } from './gateway/nginx.ts';
import type { Target } from './gateway/target.ts';
import { wakes } from './gateway/wakes.ts';
import { row } from './measure.ts';

const quick = process.argv.includes('quick');
const runtime = !process.argv.includes('process') && (await hasGvisor()) ? 'gvisor' : 'process';
const SECONDS = quick ? 2 : 8;
const MESSAGES = quick ? 1_000 : 10_000;
const WAKES = quick ? 5 : 15;

console.log(`runtime ${runtime}, load ${load()}`);
const dataDir = await makeDataDir();
const server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, runtime);
const stops: (() => Promise<void>)[] = [() => server.end(), () => dataDir.remove()];
try {
  // Where the sandbox has an address of its own, the app must be found there by whoever asks directly.
  const env = runtime === 'gvisor' ? { LISTEN: '0.0.0.0' } : {};
  const services = [guestService({ env })];
  const { id } = await server.torpor.sandboxes.create({ services, idleSeconds: 86_400 });
  const gateway: Target = {
    name: 'gateway',
    address: '127.0.0.1',
    port: Number(new URL(server.url).port),
    host: `3000-${bareSandboxId(id)}.sbx.localhost`,
  };
  const where = await (await server.torpor.sandboxes.fetch(id, 3000, '/where/')).text();
  const [address = '', port] = where.replace('::ffff:', '').split(' ');
  const direct: Target = { name: 'direct', address, port: Number(port), host: address };
  const nginx = await startNginx(direct);
  if (nginx === undefined) console.log('nginx is not installed, so it is left out.');
  else stops.unshift(nginx.stop);
  const ways = [direct, gateway, ...(nginx === undefined ? [] : [nginx.target])];

  const times = ['req/s', 'p50 ms', 'p99 ms'];
  await table('small answers, 1 connection', times, ways, (way) => smallRequests(way, 1, SECONDS));
  await table('small answers, 32 connections', times, ways, (way) => smallRequests(way, 32, SECONDS));
  await table('a download of 100 MB', ['MB/s', 'first byte ms'], ways, download);
  await table('WebSocket echo', ['msg/s', 'p50 ms', 'p99 ms'], ways, (way) => echo(way, MESSAGES));
  await wakes(server, id, gateway, WAKES);

  const { before, withIdle, withHeld, idle, held } = await crowdMemory(server, 1_000, 200);
  console.log(`\n${row(['memory of the server', 'MB'])}`);
  console.log(row(['at rest', before]));
  console.log(row([`${idle} idle connections`, withIdle]));
  console.log(row([`and ${held} held requests`, withHeld]));
} finally {
  for (const stop of stops) await stop();
}
console.log(`\nload ${load()}`);

async function hasGvisor(): Promise<boolean> {
  if (process.getuid?.() !== 0) return false;
  return (await findRunsc({ dataDir: '/nonexistent' }, new AbortController().signal)).found !== null;
}

function load(): string {
  return loadavg()
    .map((figure) => figure.toFixed(1))
    .join(' ');
}

async function table(
  title: string,
  columns: string[],
  ways: readonly Target[],
  measure: (way: Target) => Promise<number[]>,
): Promise<void> {
  console.log(`\n${row([title, ...columns])}`);
  // Twice, and the second counts: the first is for caches and compilers to get warm.
  for (const way of ways) await measure(way);
  for (const way of ways) console.log(row([way.name, ...(await measure(way))]));
}
