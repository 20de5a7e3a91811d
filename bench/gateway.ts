/**
 * The cost of the gateway: requests to the same app in the same sandbox, directly, through the gateway, and through nginx
 * instead of the gateway, one after the other in one run. Then the time to the first byte from a paused sandbox, compared
 * with a bare resume; and the memory that many clients take in the server.
 *
 *   npm run bench:gateway                in gVisor if it is installed
 *   npm run bench:gateway -- quick       shorter, with fewer rounds
 *   npm run bench:gateway -- process     in the process runtime
 *
 * nginx and wrk are used if they are installed (Debian: nginx-light, wrk); without wrk a client in Node sends the requests.
 */
import { loadavg } from 'node:os';
import { bareSandboxId } from '@torpor/protocol';
import { findRunsc } from '../packages/runtime-gvisor/src/runsc/find-runsc.ts';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';
import { measureClientMemory } from '../tests/gateway/many-clients.ts';
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
  // A gVisor sandbox has its own address; the app must listen there for direct requests.
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
  if (nginx === undefined) console.log('nginx is not installed and is skipped.');
  else stops.unshift(nginx.stop);
  const targets = [direct, gateway, ...(nginx === undefined ? [] : [nginx.target])];

  const times = ['req/s', 'p50 ms', 'p99 ms'];
  await table('small answers, 1 connection', times, targets, (target) => smallRequests(target, 1, SECONDS));
  await table('small answers, 32 connections', times, targets, (target) =>
    smallRequests(target, 32, SECONDS),
  );
  await table('a download of 100 MB', ['MB/s', 'first byte ms'], targets, download);
  await table('WebSocket echo', ['msg/s', 'p50 ms', 'p99 ms'], targets, (target) => echo(target, MESSAGES));
  await wakes(server, id, gateway, WAKES);

  const { before, withIdle, withHeld, idle, held } = await measureClientMemory(server, 1_000, 200);
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
  targets: readonly Target[],
  measure: (target: Target) => Promise<number[]>,
): Promise<void> {
  console.log(`\n${row([title, ...columns])}`);
  // The first round warms up caches and compilers; only the second counts.
  for (const target of targets) await measure(target);
  for (const target of targets) console.log(row([target.name, ...(await measure(target))]));
}
