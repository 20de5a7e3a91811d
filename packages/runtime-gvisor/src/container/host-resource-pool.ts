/**
 * A few moorings made ahead, for whoever starts next and has no container waiting. They are for `base` as it is now, belong
 * to no checkpoint and take next to no memory; making one is mostly waiting for the kernel.
 */

import { pathsIn } from '../instance/instance-files.ts';
import type { PreparedRestore } from '../runsc/runsc.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import {
  type ContainerSource,
  type HostResources,
  makeHostResources,
  newPreparedPlace,
  tearDownContainer,
} from './container-setup.ts';

const MOST = 2;

interface Ready extends HostResources {
  readonly preparedRestore: PreparedRestore;
  readonly directory: string;
  readonly tools: string;
  readonly system: string | undefined;
  readonly runsc: string;
}

type Fit = Pick<ContainerSource, 'tools' | 'system' | 'binary'>;

export class HostResourcePool {
  readonly #ctx: RuntimeContext;
  readonly #most: number;
  #ready: Ready[] = [];
  #making: Promise<void> | undefined;
  readonly #closing = new AbortController();

  constructor(ctx: RuntimeContext, most = MOST) {
    this.#ctx = ctx;
    this.#most = most;
  }

  /** One that fits, if there is one; from here on it is the caller's. */
  take(source: ContainerSource): HostResources | undefined {
    const found = source.root === 'base' ? this.#ready.findIndex((one) => fits(one, source)) : -1;
    return found < 0 ? undefined : this.#ready.splice(found, 1)[0];
  }

  /** When nobody waits for anything. Returns at once. */
  refill(): void {
    if (this.#closing.signal.aborted) return;
    this.#making ??= this.#makeAll()
      .catch((error: unknown) => {
        if (!this.#closing.signal.aborted)
          this.#ctx.report('a hostResources could not be made ahead', { error });
      })
      .finally(() => {
        this.#making = undefined;
      });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#making;
    for (const one of this.#ready.splice(0)) await this.#clear(one);
  }

  async #makeAll(): Promise<void> {
    const { tools, base, binaries } = this.#ctx;
    const source = { tools, system: await base.current(), binary: binaries.current };
    const useless = this.#ready.filter((one) => !fits(one, source));
    this.#ready = this.#ready.filter((one) => !useless.includes(one));
    for (const one of useless) await this.#clear(one);
    while (this.#ready.length < this.#most) this.#ready.push(await this.#make(source));
  }

  async #make(source: Fit): Promise<Ready> {
    const { signal } = this.#closing;
    signal.throwIfAborted();
    const { name, directory } = newPreparedPlace(this.#ctx);
    const paths = pathsIn(directory);
    try {
      const order = { name, paths, source, hostname: 'sandbox' };
      const hostResources = await makeHostResources(this.#ctx, order, signal);
      const preparedRestore = await this.#ctx.runsc.prepareRestore(hostResources.container);
      const { tools, system, binary } = source;
      const made = { tools: tools.fingerprint, system: system?.fingerprint, runsc: binary.digest };
      return { ...hostResources, preparedRestore, directory, ...made };
    } catch (thrown) {
      await tearDownContainer(this.#ctx, { name, ...paths }, new AbortController().signal);
      throw thrown;
    }
  }

  async #clear({ container, rootfs, directory }: Ready): Promise<void> {
    const { id: name, bundle } = container;
    await tearDownContainer(this.#ctx, { name, bundle, rootfs, directory }, new AbortController().signal);
  }
}

function fits(one: Ready, { tools, system, binary }: Fit): boolean {
  const isSame = one.tools === tools.fingerprint && one.system === system?.fingerprint;
  return isSame && one.runsc === binary.digest && one.preparedRestore.isWaiting;
}
