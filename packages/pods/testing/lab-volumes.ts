/** Makes a directory of the node for every claim of the storage class `lab`, and removes it with the claim. */
import { chmodSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Cluster } from '../src/cluster.ts';

export const STORAGE_CLASS = 'lab';
const LOOK_EVERY_MS = 200;

interface Claim {
  readonly metadata: { readonly name: string; readonly namespace: string; readonly uid: string };
  readonly spec: {
    readonly storageClassName?: string;
    readonly resources: { readonly requests: { readonly storage: string } };
  };
  readonly status?: { readonly phase?: string };
}

interface Volume {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly storageClassName?: string };
  readonly status?: { readonly phase?: string };
}

export class LabVolumes {
  readonly #admin: Cluster;
  readonly #directory: string;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(admin: Cluster, directory: string) {
    this.#admin = admin;
    this.#directory = directory;
  }

  begin(): void {
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      // The API server may be stopped by a test.
      await this.#round().catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
  }

  async #round(): Promise<void> {
    const ask = { what: 'look after volumes', signal: this.#stopping.signal };
    const claims = await this.#admin.get<{ items: Claim[] }>('/api/v1/persistentvolumeclaims', ask);
    const path = '/api/v1/persistentvolumes';
    const volumes = (await this.#admin.get<{ items: Volume[] }>(path, ask)).items;
    for (const { metadata, spec, status } of claims.items) {
      const name = `pv-${metadata.uid}`;
      const isOurs = spec.storageClassName === STORAGE_CLASS && status?.phase === 'Pending';
      if (!isOurs || volumes.some((volume) => volume.metadata.name === name)) continue;
      await this.#admin.create(path, { ...ask, body: this.#volume(name, metadata, spec) });
    }
    for (const { metadata, spec, status } of volumes) {
      if (spec.storageClassName !== STORAGE_CLASS || status?.phase !== 'Released') continue;
      await this.#admin.remove(`${path}/${metadata.name}`, ask);
      rmSync(join(this.#directory, metadata.name), { recursive: true, force: true });
    }
  }

  #volume(
    name: string,
    { name: claim, namespace, uid }: Claim['metadata'],
    { resources }: Claim['spec'],
  ): object {
    const directory = join(this.#directory, name);
    mkdirSync(directory, { recursive: true });
    // The kubelet does not change the owner of directories of the node.
    chmodSync(directory, 0o777);
    return {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name },
      spec: {
        // A claim is bound to no volume that is smaller.
        capacity: { storage: resources.requests.storage },
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Retain',
        storageClassName: STORAGE_CLASS,
        claimRef: { name: claim, namespace, uid, kind: 'PersistentVolumeClaim', apiVersion: 'v1' },
        hostPath: { path: directory, type: 'Directory' },
      },
    };
  }
}
