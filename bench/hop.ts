/**
 * The cost of the hop between two nodes: requests to the same app in the same sandbox, at the node on which it lives, through
 * another node, and through a bare Node proxy instead of the other node, in turns in one run.
 *
 *   npm run bench:hop              in gVisor if it is installed
 *   npm run bench:hop -- quick     shorter
 *   npm run bench:hop -- process   in the process runtime
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { bareSandboxId } from '@torpor/protocol';
import { findRunsc } from '../packages/runtime-gvisor/src/runsc/find-runsc.ts';
import { makeClusterWorld } from '../tests/cluster/cluster-world.ts';
import { startPrivatePostgres } from '../tests/setup/private-postgres.ts';
import { guestService } from '../tests/wake/guest-app.ts';
import { download, smallRequests } from './gateway/load.ts';
import type { Target } from './gateway/target.ts';
import { row } from './measure.ts';

const quick = process.argv.includes('quick');
const runtime = !process.argv.includes('process') && (await hasGvisor()) ? 'gvisor' : 'process';
const SECONDS = quick ? 2 : 6;
/** The machine is never quite at rest, so each is measured several times, in turns, and the best counts. */
const ROUNDS = quick ? 2 : 5;
const MOST = 1.3;

console.log(`runtime ${runtime}, load ${load()}`);
const postgres = await startPrivatePostgres();
if (postgres === undefined) throw new Error('PostgreSQL is not installed: npm run setup');
await using stack = new AsyncDisposableStack();
stack.defer(() => postgres.stop());
const world = stack.use(await makeClusterWorld(postgres.url, { runtime }));
const env = { TORPOR_LOG_LEVEL: 'error' };
const a = await world.start('a', { env });
const b = await world.start('b', { env });
const { id } = await a.torpor.sandboxes.create({ services: [guestService()], idleSeconds: 86_400 });
const [row0] = await world.query<{ node: string }>('SELECT node FROM sandboxes WHERE id = $1', [id]);
const [home, other] = row0?.node === 'a' ? [a, b] : [b, a];
const proxy = spawn(process.execPath, [
  fileURLToPath(new URL('./hop/bare-proxy.ts', import.meta.url)),
  String(home.port),
]);
stack.defer(() => void proxy.kill());
const [proxyPort] = (await once(proxy.stdout, 'data')) as [Buffer];
const at = (name: string, port: number): Target => ({
  name,
  address: '127.0.0.1',
  port,
  host: `3000-${bareSandboxId(id)}.sbx.localhost`,
});
/** The process in the middle, whose processor time is measured: it does not depend on what else the machine does. */
const targets: readonly (Target & { readonly pid?: number })[] = [
  at('at its node', home.port),
  { ...at('bare Node proxy', Number(proxyPort)), pid: proxy.pid ?? 0 },
  { ...at('hop', other.port), pid: other.pid },
];

for (const connections of [1, 32]) {
  const columns = ['req/s', 'p50 ms', 'p99 ms', 'cpu µs'];
  await compare(`small answers, ${connections} connections`, columns, async (target) => {
    const before = processorMs(target.pid);
    const [perSecond = 0, ...times] = await smallRequests(target, connections, SECONDS);
    const used = (processorMs(target.pid) - before) / (perSecond * SECONDS);
    return [perSecond, ...times, used * 1_000];
  });
}
await compare('a download of 100 MB', ['MB/s', 'first byte ms'], download);
console.log(`\nload ${load()}`);

/** The ratio is that of the first column, in which more is better. */
async function compare(
  title: string,
  columns: string[],
  measure: (target: (typeof targets)[number]) => Promise<number[]>,
): Promise<void> {
  console.log(`\n${row([title, ...columns])}`);
  const best = new Map<string, number[]>();
  for (const target of targets) await measure(target);
  for (let round = 0; round < ROUNDS; round++) {
    for (const target of targets) {
      const measured = await measure(target);
      if ((measured[0] ?? 0) > (best.get(target.name)?.[0] ?? 0)) best.set(target.name, measured);
    }
  }
  for (const { name } of targets) console.log(row([name, ...(best.get(name) ?? [])]));
  const ratio = (best.get('bare Node proxy')?.[0] ?? 0) / (best.get('hop')?.[0] ?? 1);
  console.log(`the hop takes ${ratio.toFixed(2)} × the time of a bare Node proxy (at most ${MOST})`);
}

/** Of a process, in user mode and in the kernel; zero without one. */
function processorMs(pid: number | undefined): number {
  if (pid === undefined) return 0;
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
    .replace(/^.*\) /s, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

async function hasGvisor(): Promise<boolean> {
  if (process.getuid?.() !== 0) return false;
  return (await findRunsc({ dataDir: '/nonexistent' }, new AbortController().signal)).found !== null;
}

function load(): string {
  return loadavg()
    .map((figure) => figure.toFixed(1))
    .join(' ');
}
