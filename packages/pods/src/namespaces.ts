/**
 * Where sandboxes live: in the namespace of their organisation, or in the namespace of all organisations that have none of
 * their own. Only objects tell where an instance is: the settings may have changed since its start.
 */
import type { Instance } from '@torpor/engine';
import { objectName } from './labels.ts';
import type { PodWorld } from './open-pod-world.ts';

/** `T` is what a runtime has for each namespace. */
export class Namespaces<T extends { readonly world: PodWorld }> {
  readonly all: readonly T[];
  readonly #first: T;
  /** The namespaces of instances that were found. Empty while there is only one namespace. */
  readonly #known = new Map<string, T>();

  constructor(all: readonly T[]) {
    const [first] = all;
    if (first === undefined) throw new Error('There is no namespace.');
    this.all = all;
    this.#first = first;
  }

  /** Where a new instance of the organisation is started. */
  ofOrg(org: string): T {
    const name = this.#first.world.podSettings.orgNamespaces[org];
    return name === undefined ? this.#first : (this.named(name) ?? this.#first);
  }

  /** Undefined when the settings do not have this namespace. */
  named(name: string): T | undefined {
    return this.all.find(({ world }) => world.podSettings.namespace === name);
  }

  /**
   * The namespace that has the instance. Throws when the cluster does not say for each of them. When none of them has the
   * instance, the result is the namespace in which it was last, and there the runtime finds out that the instance is gone.
   */
  async of(instance: Instance, has: (one: T) => Promise<boolean>): Promise<T> {
    if (this.all.length === 1) return this.#first;
    const known = this.#known.get(objectName(instance));
    if (known !== undefined) return known;
    for (const one of this.all) {
      if (!(await has(one))) continue;
      this.remember(instance, one);
      return one;
    }
    return this.#first;
  }

  remember(instance: Instance, where: T): void {
    if (this.all.length > 1) this.#known.set(objectName(instance), where);
  }

  forget(instance: Instance): void {
    this.#known.delete(objectName(instance));
  }
}
