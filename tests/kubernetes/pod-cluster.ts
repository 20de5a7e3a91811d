/** A cluster for whole servers: that of the lab, or one whose pods are agents of this machine. */
import { HollowCluster, NODE_IMAGE, startLabCluster, whyNoCluster, whyNotHollow } from '@torpor/pods/testing';
import type { SandboxId } from '@torpor/sdk';
import { makeNamespace, NAMESPACE, podVariables } from './pod-subject.ts';

const ask = { what: 'answer', signal: new AbortController().signal };

export interface PodCluster {
  /** What a server needs to use it. Its pods have Node. */
  readonly variables: Readonly<Record<string, string>>;
  /** As `kubectl delete pod --force`. */
  deletePods(id: SandboxId): Promise<void>;
  stop(): Promise<void>;
}

export const POD_CLUSTERS = {
  hollow: { what: 'pods that are agents of this machine', why: whyNotHollow(), start: startHollow },
  lab: { what: 'pods of the lab', why: whyNoCluster(), start: startLab },
} as const;

async function startHollow(): Promise<PodCluster> {
  const cluster = new HollowCluster(NAMESPACE);
  await cluster.start();
  return {
    variables: cluster.variables,
    deletePods: async (id) => {
      for (const name of cluster.names('pods')) if (name.includes(id.slice(4))) cluster.deletePod(name);
    },
    stop: () => cluster.stop(),
  };
}

async function startLab(): Promise<PodCluster> {
  const cluster = await startLabCluster();
  await makeNamespace(cluster);
  return {
    variables: {
      ...podVariables(cluster),
      TORPOR_KUBERNETES_IMAGE: NODE_IMAGE,
      TORPOR_KUBERNETES_REACH: 'port-forward',
    },
    deletePods: async (id) => {
      const query = { labelSelector: `torpor.dev/sandbox=${id.slice(4)}` };
      const path = `/api/v1/namespaces/${NAMESPACE}/pods`;
      await cluster.admin.remove(path, { ...ask, query, body: { gracePeriodSeconds: 0 } });
    },
    stop: () => cluster.stop(),
  };
}
