/**
 * The Secret of one start: the credential of the agent, and what the agent is set up with, so that a later server can set
 * it up again. Made before the pod, which cannot start without it, and owned by the pod afterwards, so that it dies with it.
 */
import type { Instance, StartSpec } from '@torpor/engine';
import type { Cluster } from './cluster.ts';
import { isAbsent, isConflict } from './cluster-fault.ts';
import { labelsOf, objectName } from './labels.ts';
import { CREDENTIAL_KEY } from './pod-spec.ts';
import type { List, OwnerReference, Secret } from './resources.ts';

type SetupSpec = Pick<StartSpec, 'env' | 'services' | 'user' | 'workdir'>;

export interface StartSecret {
  readonly token: string;
  readonly spec: SetupSpec;
}

const SPEC_KEY = 'spec';

export class StartSecrets {
  readonly #cluster: Cluster;
  readonly #path: string;
  readonly #home: string;

  constructor(cluster: Cluster, namespace: string, home: string) {
    this.#cluster = cluster;
    this.#path = `/api/v1/namespaces/${namespace}/secrets`;
    this.#home = home;
  }

  /** May be repeated for one start: the first one counts. */
  async make(instance: Instance, secret: StartSecret, signal: AbortSignal): Promise<StartSecret> {
    const { env, services, user, workdir } = secret.spec;
    const body = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: objectName(instance), labels: labelsOf(this.#home, instance) },
      type: 'Opaque',
      stringData: {
        [CREDENTIAL_KEY]: secret.token,
        [SPEC_KEY]: JSON.stringify({ env, services, user, workdir }),
      },
    };
    try {
      await this.#cluster.create(this.#path, { what: 'store the credential', body, signal });
      return secret;
    } catch (thrown) {
      if (!isConflict(thrown)) throw thrown;
      return (await this.read(instance, signal)) ?? secret;
    }
  }

  /** Undefined when there is none. */
  async read(instance: Instance, signal: AbortSignal): Promise<StartSecret | undefined> {
    try {
      const found = await this.#cluster.get<Secret>(`${this.#path}/${objectName(instance)}`, {
        what: 'read the credential',
        signal,
      });
      const token = decoded(found.data?.[CREDENTIAL_KEY]);
      return token === '' ? undefined : { token, spec: JSON.parse(decoded(found.data?.[SPEC_KEY]) || '{}') };
    } catch (thrown) {
      if (isAbsent(thrown)) return undefined;
      throw thrown;
    }
  }

  async giveTo(instance: Instance, owner: OwnerReference, signal: AbortSignal): Promise<void> {
    const body = { metadata: { ownerReferences: [owner] } };
    const ask = { what: 'give the credential to its pod', body, signal };
    await this.#cluster.patch(`${this.#path}/${objectName(instance)}`, ask);
  }

  async list(selector: string, signal: AbortSignal): Promise<readonly Secret[]> {
    const query = { labelSelector: selector };
    return (
      await this.#cluster.get<List<Secret>>(this.#path, { what: 'list the credentials', query, signal })
    ).items;
  }

  async remove(instance: Instance, signal: AbortSignal): Promise<void> {
    try {
      await this.#cluster.remove(`${this.#path}/${objectName(instance)}`, {
        what: 'remove the credential',
        signal,
      });
    } catch (thrown) {
      if (!isAbsent(thrown)) throw thrown;
    }
  }
}

function decoded(value: string | undefined): string {
  return Buffer.from(value ?? '', 'base64').toString('utf8');
}
