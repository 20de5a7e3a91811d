/** Opens what both Kubernetes runtimes work with: the cluster, the pods and Secrets of this server, and the way to them. */
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock, Report } from '@torpor/engine';
import type { RuntimeSettings } from '@torpor/runtime-shared';
import { Cluster } from './cluster.ts';
import { homeIn } from './home.ts';
import { selectorOf } from './labels.ts';
import { ObjectWatch } from './object-watch.ts';
import { byPodAddress, type PodReach, ThroughApiServer } from './pod-reach.ts';
import type { PodSettings } from './pod-settings.ts';
import { Pods } from './pods.ts';
import type { Pod } from './resources.ts';
import { StartSecrets } from './start-secret.ts';

export interface PodWorldOptions {
  readonly dataDir: string;
  /** The same for all nodes of a cluster. Absent: a server that is alone, whose data directory has a home of its own. */
  readonly sharedHome?: string | undefined;
  /** Each runtime of a server has its own objects, also in one namespace. */
  readonly runtime: string;
  readonly podSettings: PodSettings & { readonly agentImage: string };
  readonly settings: RuntimeSettings;
  readonly clock: Clock;
  readonly report: Report;
}

export interface PodWorld extends PodWorldOptions {
  readonly cluster: Cluster;
  readonly home: string;
  readonly pods: Pods;
  readonly secrets: StartSecrets;
  readonly watch: ObjectWatch<Pod>;
  readonly reach: PodReach;
  close(): Promise<void>;
}

/** Asks the cluster nothing: a server starts, and says `unknown`, while its cluster does not answer. */
export async function openPodWorld(options: PodWorldOptions): Promise<PodWorld> {
  const { podSettings, settings, clock, report } = options;
  const { namespace } = podSettings;
  const cluster = new Cluster({
    kubeconfig: podSettings.config,
    context: podSettings.context,
    requestMs: settings.kubernetesRequestMs,
  });
  const home = `${await homeIn(options.dataDir, options.sharedHome)}-${options.runtime}`;
  const path = `/api/v1/namespaces/${namespace}/pods`;
  const watch = new ObjectWatch<Pod>({ cluster, path, selector: selectorOf(home), clock, report });
  watch.begin();
  // The path of a socket has about 100 bytes, and the path of a data directory may be longer.
  const socketDir = join(tmpdir(), `torpor-pods-${randomBytes(4).toString('hex')}`);
  const way = podSettings.reach ?? (cluster.isInside ? 'pod-ip' : 'port-forward');
  const reach = way === 'pod-ip' ? byPodAddress : new ThroughApiServer(cluster, namespace, socketDir);
  return {
    ...options,
    cluster,
    home,
    pods: new Pods({ cluster, namespace, watch, clock, blockedMs: settings.kubernetesBlockedMs }),
    secrets: new StartSecrets(cluster, namespace, home),
    watch,
    reach,
    close: async () => {
      await watch.stop();
      await reach.close();
      await rm(socketDir, { recursive: true, force: true });
      cluster.close();
    },
  };
}
