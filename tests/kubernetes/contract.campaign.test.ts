import { describeRuntimeContract } from '@torpor/engine/testing';
import { type LabCluster, startLabCluster, whyNoCluster } from '@torpor/pods/testing';
import { afterAll, beforeAll, describe, vi } from 'vitest';
import { makeNamespace, podSubject } from './pod-subject.ts';

const why = whyNoCluster();
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

describe.skipIf(why !== null)(`Kubernetes runtimes on a cluster${why === null ? '' : `: ${why}`}`, () => {
  let cluster: LabCluster;
  beforeAll(async () => {
    cluster = await startLabCluster();
    await makeNamespace(cluster);
  });
  afterAll(() => cluster?.stop());

  describeRuntimeContract('kubernetes', () => podSubject('kubernetes', cluster));
  describeRuntimeContract('agent-sandbox', () => podSubject('agent-sandbox', cluster));
});
