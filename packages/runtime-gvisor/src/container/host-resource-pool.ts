/**
 * Makes host resources (network namespace, control group, bundle, a restore that waits) before they are needed, for
 * starts without a pre-created container. They belong to no checkpoint and take hardly any memory; making them is mostly
 * waiting for the kernel. They fit the present tools and runsc, and roots of one kind: all own roots, or the host's
 * present system directories.
 */
import type { RootKind } from '../checkpoint-needs.ts';
import { pathsIn } from '../instance/instance-files.ts';
import { withDefaults } from '../limits/default-limits.ts';
import type { PreparedRestore } from '../runsc/prepared-commands.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import {
  type ContainerSource,
  type HostResources,
  type HostResourcesSource,
  makeHostResources,
  newUnassignedPaths,
  tearDownContainer,
} from './container-setup.ts';

const DEFAULT_SIZE = 2;

interface PooledResources extends HostResources {
  readonly preparedRestore: PreparedRestore;
  readonly directory: string;
  readonly tools: string;
  readonly system: string | undefined;
  readonly runscDigest: string;
}

export class HostResourcePool {
  readonly #ctx: RuntimeContext;
  readonly #size: number;
  #ready: PooledResources[] = [];
  /** Of the last start: the next one is likely to be of the same kind. */
  #rootKind: RootKind;
  #refilling: Promise<void> | undefined;
  readonly #closing = new AbortController();

  constructor(ctx: RuntimeContext, size = DEFAULT_SIZE) {
    this.#ctx = ctx;
    this.#size = size;
    this.#rootKind = ctx.ownBase?.() === undefined ? 'base' : 'own';
  }

  /** Gives the caller resources that fit, if there are any. The caller owns them afterwards. */
  take(source: ContainerSource): HostResources | undefined {
    this.#rootKind = source.rootKind;
    const found = this.#ready.findIndex((pooled) => fits(pooled, source));
    return found < 0 ? undefined : this.#ready.splice(found, 1)[0];
  }

  /** To be called when no caller waits. Returns at once. */
  refill(): void {
    if (this.#closing.signal.aborted) return;
    this.#refilling ??= this.#makeMissing()
      .catch((error: unknown) => {
        if (!this.#closing.signal.aborted)
          this.#ctx.report('host resources could not be made in advance', { error });
      })
      .finally(() => {
        this.#refilling = undefined;
      });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#refilling;
    for (const pooled of this.#ready.splice(0)) await this.#tearDown(pooled);
  }

  async #makeMissing(): Promise<void> {
    const { tools, base, binaries } = this.#ctx;
    const system = this.#rootKind === 'own' ? null : await base.current();
    const source = { tools, system, binary: binaries.current };
    const useless = this.#ready.filter((pooled) => !fits(pooled, source));
    this.#ready = this.#ready.filter((pooled) => !useless.includes(pooled));
    for (const pooled of useless) await this.#tearDown(pooled);
    while (this.#ready.length < this.#size) this.#ready.push(await this.#make(source));
  }

  async #make(source: HostResourcesSource): Promise<PooledResources> {
    const { signal } = this.#closing;
    signal.throwIfAborted();
    const { name, directory } = newUnassignedPaths(this.#ctx);
    const paths = pathsIn(directory);
    try {
      // The start that takes the resources sets the memory of its sandbox.
      const { memoryMb } = withDefaults({});
      const options = { name, paths, source, hostname: 'sandbox', memoryMb };
      const hostResources = await makeHostResources(this.#ctx, options, signal);
      const preparedRestore = await this.#ctx.runsc.prepareRestore(hostResources.container);
      return {
        ...hostResources,
        preparedRestore,
        directory,
        tools: source.tools.fingerprint,
        system: source.system?.fingerprint,
        runscDigest: source.binary.digest,
      };
    } catch (thrown) {
      await tearDownContainer(this.#ctx, { name, ...paths }, new AbortController().signal);
      throw thrown;
    }
  }

  async #tearDown({ container, rootfs, directory }: PooledResources): Promise<void> {
    const { id: name, bundle } = container;
    await tearDownContainer(this.#ctx, { name, bundle, rootfs, directory }, new AbortController().signal);
  }
}

function fits(pooled: PooledResources, { tools, system, binary }: HostResourcesSource): boolean {
  return (
    pooled.tools === tools.fingerprint &&
    pooled.system === system?.fingerprint &&
    pooled.runscDigest === binary.digest &&
    pooled.preparedRestore.isWaiting
  );
}
