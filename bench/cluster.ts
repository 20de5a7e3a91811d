/**
 * Sandboxes that wake on another node, side by side with the same wake on their own node and with the floor: a raw download of
 * the same objects and `runsc restore`. Also wakes beside a replication, and the drain of a node.
 *
 *   npm run bench:cluster                   as root, with the lab's S3 (npm run lab:setup s3); some minutes
 *   npm run bench:cluster -- wake           one part: wake, beside or drain
 *   npm run bench:cluster -- drain=50       a drain of 50 sandboxes
 *   npm run bench:cluster -- rounds=10      more rounds
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { labMissing } from '@torpor/object-store/testing';
import { makeClusterWorld, STORE } from '../tests/cluster/cluster-world.ts';
import { startPrivatePostgres } from '../tests/setup/private-postgres.ts';
import { besideReplication } from './cluster/beside.ts';
import { drain } from './cluster/drain.ts';
import { type BenchCluster, makeBenchCluster } from './cluster/nodes.ts';
import { wakes } from './cluster/wakes.ts';

const words = process.argv.slice(2);
const numberOf = (name: string, preset: number) =>
  Number(words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1) ?? preset);
const parts = ['wake', 'beside', 'drain'] as const;
const asked = parts.filter((part) => words.some((word) => word === part || word.startsWith(`${part}=`)));
const rounds = numberOf('rounds', 5);

const PARTS: Readonly<Record<(typeof parts)[number], (cluster: BenchCluster) => Promise<void>>> = {
  wake: (cluster) => wakes(cluster, { megabytes: numberOf('megabytes', 50), rounds }),
  beside: (cluster) => besideReplication(cluster, { megabytes: 400, rounds }),
  drain: (cluster) => drain(cluster, numberOf('drain', 6)),
};

const load = () =>
  loadavg()
    .map((figure) => figure.toFixed(1))
    .join(' ');
console.log(`two nodes with gVisor, the store in ${STORE}, load ${load()}`);
if (labMissing !== undefined)
  console.log('The figures of a directory are not those of a store over the network.');
const postgres = await startPrivatePostgres();
if (postgres === undefined) throw new Error('PostgreSQL is not installed: npm run setup');
await using stack = new AsyncDisposableStack();
stack.defer(() => postgres.stop());
const scratch = await mkdtemp(join(tmpdir(), 'torpor-bench-cluster-'));
stack.defer(() => rm(scratch, { recursive: true, force: true }));
const world = stack.use(await makeClusterWorld(postgres.url, { runtime: 'gvisor' }));
const cluster = await makeBenchCluster(world, scratch);
for (const part of asked.length > 0 ? asked : parts) await PARTS[part](cluster);
console.log(`\nload ${load()}`);
