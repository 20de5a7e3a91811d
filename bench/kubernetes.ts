/**
 * Measures the time from a create to the end of the first command on the lab cluster (`npm run lab:setup`), side by side in
 * one run: the same objects made by hand, and Torpor's API.
 *
 *   npm run bench:kubernetes            as root; some ten minutes
 *   npm run bench:kubernetes -- quick   fewer rounds
 */
import {
  AGENT_IMAGE,
  eventually,
  type LabCluster,
  PLAIN_IMAGE,
  STORAGE_CLASS,
  startLabCluster,
  whyNoCluster,
} from '@torpor/pods/testing';
import type { Torpor } from '@torpor/sdk';
import { makeDataDir, startTorpor } from '../tests/crash/torpor-process.ts';
import { type Bare, bareClaim, barePod, bareSandbox, openBare } from './kubernetes/bare.ts';
import { type Contender, inTurns, rest } from './lifecycle/contender.ts';
import { row, timesOf } from './measure.ts';

const NAMESPACE = 'bench';
const POOL = 2;
const ROUNDS = process.argv.includes('quick') ? 5 : 11;
const ask = { what: 'answer', signal: new AbortController().signal };

const why = whyNoCluster();
if (why !== null) throw new Error(`There is no lab cluster: ${why}.`);

function measured(what: string, work: () => Promise<void>, after: () => Promise<unknown>): Contender {
  const times: number[] = [];
  return {
    round: async () => {
      await rest();
      const begun = performance.now();
      await work();
      times.push(performance.now() - begun);
      await after();
    },
    lines: () => [{ what, times: timesOf(times) }],
    end: async () => {},
  };
}

const bare = (what: string, { run, remove }: Bare) => measured(what, run, remove);

function product(what: string, { sandboxes }: Torpor, memoryMb?: number): Contender {
  let last: Awaited<ReturnType<typeof sandboxes.create>> | undefined;
  return measured(
    what,
    async () => {
      last = await sandboxes.create(memoryMb === undefined ? {} : { resources: { memoryMb } });
      await sandboxes.exec(last.id, 'true');
    },
    async () => {
      if (last !== undefined) await sandboxes.kill(last.id);
    },
  );
}

interface Pool {
  readonly metadata: { readonly name: string };
  readonly status?: { readonly readyReplicas?: number };
}

async function fullPool({ admin }: LabCluster): Promise<string> {
  const path = `/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/${NAMESPACE}/sandboxwarmpools`;
  return eventually('the warm pool is full', async () => {
    const [pool] = (await admin.get<{ items: Pool[] }>(path, ask)).items;
    if (pool?.status?.readyReplicas !== POOL) throw new Error(JSON.stringify(pool?.status));
    return pool.metadata.name;
  });
}

/** A claim is measured only while pods wait. */
function afterPoolIsFull(contender: Contender, cluster: LabCluster): Contender {
  return {
    ...contender,
    round: async () => {
      await fullPool(cluster);
      await contender.round();
    },
  };
}

const cluster = await startLabCluster();
const dataDirs = [await makeDataDir(), await makeDataDir(), await makeDataDir()] as const;
const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } };
await cluster.admin.create('/api/v1/namespaces', { ...ask, body: namespace });
await eventually('the default service account', () =>
  cluster.admin.get(`/api/v1/namespaces/${NAMESPACE}/serviceaccounts/default`, ask),
);
const variables = {
  TORPOR_LOG_LEVEL: 'error',
  TORPOR_KUBERNETES_CONFIG: cluster.kubeconfig,
  TORPOR_KUBERNETES_NAMESPACE: NAMESPACE,
  TORPOR_KUBERNETES_IMAGE: PLAIN_IMAGE,
  TORPOR_KUBERNETES_AGENT_IMAGE: AGENT_IMAGE,
  TORPOR_KUBERNETES_STORAGE_CLASS: STORAGE_CLASS,
  TORPOR_KUBERNETES_MEMORY_MB: '256',
};
const floors = await openBare(dataDirs[0].path, variables);
const pods = await startTorpor(dataDirs[1].path, variables, 'kubernetes');
const pooled = { ...variables, TORPOR_KUBERNETES_WARM_POOL: String(POOL) };
const volumes = await startTorpor(dataDirs[2].path, pooled, 'agent-sandbox');
try {
  const { world } = floors;
  const pool = await fullPool(cluster);
  const pairs: [Contender, Contender][] = [
    [bare('a bare pod', barePod(world)), product('kubernetes', pods.torpor)],
    // Other limits than those of the pool, so that the server makes a Sandbox of its own.
    [bare('a bare Sandbox', bareSandbox(world)), product('agent-sandbox, cold', volumes.torpor, 255)],
    [
      afterPoolIsFull(bare('a bare claim', bareClaim(world, pool)), cluster),
      afterPoolIsFull(product('agent-sandbox, warm pool', volumes.torpor), cluster),
    ],
  ];
  await inTurns(pairs.flat(), ROUNDS);
  console.log(`create to the end of the first command, ${ROUNDS} rounds`);
  console.log(row(['', 'p50 ms', 'p95 ms', '× bare']));
  for (const pair of pairs) {
    const floor = pair[0].lines()[0]?.times.p50 ?? 0;
    for (const { what, times } of pair.flatMap((one) => one.lines()))
      console.log(row([what, times.p50, times.p95, times.p50 / floor]));
  }
} catch (thrown) {
  // Printed here, because an error of the clean-up would replace it.
  console.error(thrown);
  process.exitCode = 1;
} finally {
  for (const server of [pods, volumes]) await server.end().catch(console.error);
  await floors.close();
  await cluster.stop();
  for (const dataDir of dataDirs) await dataDir.remove();
}
process.exit();
