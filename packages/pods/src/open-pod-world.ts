/**
 * Opens what both Kubernetes runtimes work with: the cluster, the pods and Secrets of this server in each namespace, and the
 * way to them.
 */
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

/** One namespace of the cluster. `podSettings.namespace` names it. */
export interface PodWorld extends PodWorldOptions {
  readonly cluster: Cluster;
  readonly home: string;
  readonly pods: Pods;
  readonly secrets: StartSecrets;
  readonly watch: ObjectWatch<Pod>;
  readonly reach: PodReach;
}

export interface PodWorlds {
  /** One for each namespace of the settings. The first is that of organisations without a namespace of their own. */
  readonly all: readonly PodWorld[];
  close(): Promise<void>;
}

/** Asks the cluster nothing: a server starts, and says `unknown`, while its cluster does not answer. */
export async function openPodWorlds(options: PodWorldOptions): Promise<PodWorlds> {
  const { podSettings, settings } = options;
  const cluster = new Cluster({
    kubeconfig: podSettings.config,
    context: podSettings.context,
    requestMs: settings.kubernetesRequestMs,
  });
  const home = `${await homeIn(options.dataDir, options.sharedHome)}-${options.runtime}`;
  // The path of a socket has about 100 bytes, and the path of a data directory may be longer.
  const socketDir = join(tmpdir(), `torpor-pods-${randomBytes(4).toString('hex')}`);
  const namespaces = new Set([podSettings.namespace, ...Object.values(podSettings.orgNamespaces)]);
  const all = [...namespaces].map((namespace) =>
    openNamespace(options, { cluster, home, namespace, socketDir }),
  );
  return {
    all,
    close: async () => {
      for (const { watch, reach } of all) {
        await watch.stop();
        await reach.close();
      }
      await rm(socketDir, { recursive: true, force: true });
      cluster.close();
    },
  };
}

interface NamespaceOptions {
  readonly cluster: Cluster;
  readonly home: string;
  readonly namespace: string;
  readonly socketDir: string;
}

function openNamespace(
  options: PodWorldOptions,
  { cluster, home, namespace, socketDir }: NamespaceOptions,
): PodWorld {
  const { podSettings, settings, clock, report } = options;
  const path = `/api/v1/namespaces/${namespace}/pods`;
  const watch = new ObjectWatch<Pod>({ cluster, path, selector: selectorOf(home), clock, report });
  watch.begin();
  const way = podSettings.reach ?? (cluster.isInside ? 'pod-ip' : 'port-forward');
  return {
    ...options,
    podSettings: { ...podSettings, namespace },
    cluster,
    home,
    pods: new Pods({ cluster, namespace, watch, clock, blockedMs: settings.kubernetesBlockedMs }),
    secrets: new StartSecrets(cluster, namespace, home),
    watch,
    reach: way === 'pod-ip' ? byPodAddress : new ThroughApiServer(cluster, namespace, socketDir, clock),
  };
}
