/** What a server has beside a server that is alone when it is one of several nodes: signatures, a guard, calls to other nodes. */
import { hkdfSync, randomBytes } from 'node:crypto';
import { availableParallelism, totalmem } from 'node:os';
import { openPostgres } from '@torpor/database';
import { type ClusterOptions, connectionNameOf, type Report } from '@torpor/engine';
import { HopSigner } from '@torpor/gateway';
import { Guard, type GuardTargets } from '@torpor/host';
import type { ServerConfig } from '../config.ts';
import { parseClusterSecrets } from './cluster-secrets.ts';
import { handOverThrough } from './node-client.ts';

/** How far the clocks of two nodes may differ. A node whose clock differs more from the database's does not join. */
const HOP_WINDOW_MS = 30_000;

export interface Cluster {
  readonly signer: HopSigner;
  /** For the engine. */
  readonly options: ClusterOptions;
  /** The server stops in order. Its guard stays for the sandboxes that run on. */
  release(): Promise<void>;
}

export interface ClusterParts {
  readonly version: string;
  readonly targets: GuardTargets;
  readonly secrets: readonly Uint8Array[];
  readonly report: Report;
}

/** Undefined for a server that is alone. */
export function clusterSecretsOf({ node, clusterSecret }: ServerConfig): readonly Uint8Array[] | undefined {
  return node === undefined || clusterSecret === undefined ? undefined : parseClusterSecrets(clusterSecret);
}

/** The mark by which all nodes find the objects of their sandboxes in Kubernetes. Undefined for a server that is alone. */
export function sharedPodHome({ node }: Pick<ServerConfig, 'node'>, secret: Uint8Array): string | undefined {
  if (node === undefined) return undefined;
  return Buffer.from(hkdfSync('sha256', secret, '', 'torpor kubernetes home v1', 10)).toString('hex');
}

/** Undefined for a server that is alone. */
export async function openCluster(
  config: ServerConfig,
  { version, targets, secrets, report }: ClusterParts,
): Promise<Cluster | undefined> {
  const {
    node: name,
    advertise,
    nodeMemoryMb = Math.floor(totalmem() / 1024 ** 2),
    dataDir,
    database,
  } = config;
  if (name === undefined || advertise === undefined || database === undefined) return undefined;
  const now = () => Date.now();
  const signer = new HopSigner({ self: name, secrets, now, randomBytes, windowMs: HOP_WINDOW_MS });
  const endServer = () => process.kill(process.pid, 'SIGKILL');
  const guard = await Guard.start({ directory: dataDir, targets, report, endServer });
  const renewals = await openRenewals(database, name, config.configured.settings.engine.nodeLeaseMs);
  return {
    signer,
    options: {
      name,
      address: new URL(advertise).origin,
      version,
      memoryMb: nodeMemoryMb,
      processors: availableParallelism(),
      renewals,
      guard,
      handOver: handOverThrough(signer),
      onFenced: () => guard.endEverything('this node was fenced: its sandboxes and its server are ended'),
    },
    release: async () => {
      guard.release();
      await renewals.close();
    },
  };
}

/** A connection on which nothing answers is given up early: another one may work, and the lease must not end meanwhile. */
function openRenewals(url: string, node: string, leaseMs: number) {
  const waitMs = Math.ceil(leaseMs / 6);
  return openPostgres({
    url,
    applicationName: connectionNameOf(node),
    writers: 1,
    readers: 1,
    connectTimeoutMs: waitMs,
    statementTimeoutMs: waitMs,
    answerGraceMs: Math.ceil(waitMs / 5),
    idleTransactionTimeoutMs: Math.ceil(leaseMs / 3),
  });
}
